{{/* Labels by which the objects of one part select its pods; takes {root, part}. */}}
{{- define "quotaplane.selector" -}}
{{ include "quotaplane.instance" .root }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "quotaplane.instance" -}}
app.kubernetes.io/name: quotaplane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of an object; takes {root, part}. */}}
{{- define "quotaplane.labels" -}}
{{ include "quotaplane.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* Name of a part's objects; takes {root, part}. */}}
{{- define "quotaplane.name" -}}
{{ printf "%s-%s" .root.Release.Name .part | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* "true" if history and checkpoint are on the volume, "" if they are on an object store. */}}
{{- define "quotaplane.onVolume" -}}
{{- $history := contains "://" .Values.settings.history.path -}}
{{- if ne $history (contains "://" .Values.settings.checkpoint) -}}
{{- fail "settings.history.path and settings.checkpoint: both on the volume, or both on the object store" -}}
{{- end -}}
{{- if not $history }}true{{ end -}}
{{- end }}

{{- define "quotaplane.claim" -}}
{{ .Values.storage.claim | default (printf "%s-data" .Release.Name) }}
{{- end }}

{{- define "quotaplane.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/*
The pod of a part. Takes root, part, args (words behind `quotaplane`), port (of probes and metrics;
none: no probes), ready and alive (paths), scheme, grace (seconds), resources, and makesPods: whether
it may make pods for Spark.
*/}}
{{- define "quotaplane.pod" -}}
{{- $values := .root.Values -}}
metadata:
  labels: {{- include "quotaplane.labels" . | nindent 4 }}
  annotations:
    # new settings are new pods
    checksum/settings: {{ list $values.settings $values.quota.executors | toJson | sha256sum | trunc 63 }}
spec:
  serviceAccountName: {{ .root.Release.Name }}{{ if .makesPods }}-driver{{ end }}
  automountServiceAccountToken: {{ .makesPods | default false }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .grace }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- if and (include "quotaplane.onVolume" .root) (eq $values.storage.accessMode "ReadWriteOnce") (ne .part "quota") }}
  affinity:
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "quotaplane.selector" (dict "root" .root "part" "quota") | nindent 14 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "quotaplane.selector" . | nindent 10 }}
  containers:
    - name: {{ .part }}
      image: {{ include "quotaplane.image" .root | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: {{ .args | toJson }}
      env:
        # beside the checkpoint two jobs would write one file
        - {name: QUOTAPLANE_LOG_DIR, value: /tmp/logs}
        {{- if .makesPods }}
        - {name: QUOTAPLANE_EXECUTORS, value: installed}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        {{- end }}
        {{- range $name, $from := $values.secrets.variables }}
        - name: {{ $name }}
          valueFrom: {secretKeyRef: {name: {{ $from.secret }}, key: {{ $from.key }}}}
        {{- end }}
      {{- with .port }}
      ports:
        - {name: http, containerPort: {{ . }}}
      startupProbe:
        httpGet: {path: {{ $.alive }}, port: http, scheme: {{ $.scheme | default "HTTP" }}}
        periodSeconds: 5
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: {{ $.alive }}, port: http, scheme: {{ $.scheme | default "HTTP" }}}
        timeoutSeconds: 10
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: {{ $.ready }}, port: http, scheme: {{ $.scheme | default "HTTP" }}}
        timeoutSeconds: 10
      {{- end }}
      resources: {{- toYaml .resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: settings, mountPath: /etc/quotaplane, readOnly: true}
        - {name: data, mountPath: /var/lib/quotaplane}
        - {name: tmp, mountPath: /tmp}
        {{- range $folder, $secret := $values.secrets.folders }}
        - {name: secret-{{ $folder }}, mountPath: /run/secrets/quotaplane/{{ $folder }}, readOnly: true}
        {{- end }}
  volumes:
    - name: settings
      configMap: {name: {{ .root.Release.Name }}-settings}
    - name: data
      {{- if include "quotaplane.onVolume" .root }}
      persistentVolumeClaim: {claimName: {{ include "quotaplane.claim" .root }}}
      {{- else }}
      emptyDir: {}
      {{- end }}
    - name: tmp
      emptyDir: {}
    {{- range $folder, $secret := $values.secrets.folders }}
    - name: secret-{{ $folder }}
      secret: {secretName: {{ $secret }}, defaultMode: 0440, optional: false}
    {{- end }}
  {{- with $values.pod }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The Service in front of a part's port; takes root, part and port. */}}
{{- define "quotaplane.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "quotaplane.name" . }}
  labels:
    {{- include "quotaplane.labels" . | nindent 4 }}
    # the name of the scrape job in deploy/prometheus and in the dashboard
    quotaplane-job: quotaplane-{{ .part }}
spec:
  {{- if ne .part "server" }}
  clusterIP: None
  publishNotReadyAddresses: true
  {{- end }}
  selector: {{- include "quotaplane.selector" . | nindent 4 }}
  ports:
    - {name: http, port: {{ .port }}, targetPort: http}
{{- end }}

// What a change of a group would have done with the recorded use, and making the change.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { LAWS } from "./declared.js";
import { NOTHING, amount, duration, rate, time } from "./format.js";
import { Choice, Dialog, Failure, Table, Time } from "./parts.js";

const PAUSE_MS = 30;

/** Sums of lists; null where nothing is known. */
export function sumOf(lists) {
  return (lists[0] ?? []).map((_, i) =>
    lists.reduce((sum, list) => (list[i] === null ? sum : (sum ?? 0) + list[i]), null),
  );
}

/** Values at other times: each time has that of the bucket in which it is. */
export function aligned(values, from, to) {
  if (from.length === to.length && from[0] === to[0]) return values;
  let place = 0;
  return to.map((moment) => {
    while (place + 1 < from.length && from[place + 1] <= moment) place += 1;
    return from[place] <= moment ? values[place] : null;
  });
}

/** The fields of the group that are to be changed. */
export function changesOf(asked, dimension) {
  const changes = {};
  if (asked.quota !== undefined) changes[`${dimension}_per_s`] = asked.quota;
  if (asked.weight !== undefined) changes.weight = asked.weight;
  if (asked.floor !== undefined) changes[`floor_${dimension}_per_s`] = asked.floor;
  return changes;
}

/** The answer for the newest question; one request at a time, so that a dragged line stays ahead. */
export function useWhatIf(question) {
  const [state, setState] = useState({ content: null, error: null });
  const wanted = useRef(null);
  const isAsking = useRef(false);
  const key = JSON.stringify(question);
  useEffect(() => {
    wanted.current = question;
    if (question === null) setState({ content: null, error: null });
    const run = async () => {
      if (isAsking.current) return;
      isAsking.current = true;
      while (wanted.current !== null) {
        const { dimension, asked, ...about } = wanted.current;
        const now = wanted.current;
        try {
          const body = { ...about, changes: changesOf(asked, dimension), law: asked.law ?? null };
          const { content } = await ask("what-if", { method: "POST", body });
          const of = content.dimensions.find((d) => d.dimension === dimension);
          if (wanted.current !== null)
            setState({ content: { times: content.times, rows: content.rows, brokers: [], ...of }, error: null });
        } catch (error) {
          if (wanted.current !== null) setState((before) => ({ ...before, error }));
        }
        if (wanted.current === now) wanted.current = null;
        else await new Promise((resume) => setTimeout(resume, PAUSE_MS));
      }
      isAsking.current = false;
    };
    run();
  }, [key]);
  return state;
}

const COLUMNS = [
  {
    title: "Broker",
    cell: (row) => html`<bdi>${row.broker}</bdi>
      ${row.first_less_at && html`<span class="hint below" title=${`the last time at ${time(row.last_less_at)}`}>
        ${duration(row.less_s)} from <${Time} at=${row.first_less_at} /></span>`}`,
  },
  {
    title: "Less or more",
    hint: "Less: what it used above the changed limit. More: what it could have used besides, while it was at its limit",
    isNumber: true,
    cell: (row) => html`
      ${row.less_units > 0 && html`<div class="bad">${amount(row.less_units, row.dimension)} less</div>`}
      ${row.more_units > 0 && html`<div class="good">${amount(row.more_units, row.dimension)} more</div>`}
      ${!row.less_units && !row.more_units && NOTHING}`,
  },
];

function Result({ content, dimension, name }) {
  if (!content) return null;
  const rows = content.rows.filter((row) => row.dimension === dimension);
  const others = rows.filter((row) => row.group !== name);
  const losers = rows.filter((row) => row.less_units > 0).length;
  const sum = (key) => rows.reduce((total, row) => total + row[key], 0);
  const columns = others.length
    ? [{ title: "Group", cell: (row) => html`<bdi>${row.group}</bdi>` }, ...COLUMNS]
    : COLUMNS;
  return html`<div aria-live="polite">
    <p class="verdict">
      ${rows.length === 0 && "Nobody would have had less or more."}
      ${rows.length > 0 && losers === 0 && html`<b class="good">Nobody would have had less</b> than was used.`}
      ${losers > 0 && html`<b class="bad">${losers} ${losers === 1 ? "broker" : "brokers"} would have had ${amount(sum("less_units"), dimension)} less</b> than was used.`}
      ${sum("more_units") > 0 && html` Up to <b class="good">${amount(sum("more_units"), dimension)} more</b> could have been used.`}
    </p>
    ${rows.length > 0 && html`<${Table} label="Brokers with the change" columns=${columns} rows=${rows.slice(0, 100)}
      keyOf=${(row) => `${row.group} ${row.broker}`} />`}
    ${rows.length > 100 && html`<p class="hint">${rows.length - 100} more brokers and groups are not shown.</p>`}
    <p class="hint">As the law would have decided at once, on the recorded use. For the exact steps of the job:${" "}
      <code>quotaplane replay --set ... --conf FILE</code></p>
  </div>`;
}

/** Shows what a change does before it is made, and asks for the reason. */
function Apply({ name, group, changes, onClose, done }) {
  const [why, setWhy] = useState("");
  const [shown, setShown] = useState(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const path = `groups/${encodeURIComponent(name)}`;
  const headers = group.etag ? { "If-Match": group.etag } : {};
  useEffect(() => {
    ask(`${path}?dry_run=true`, { method: "PATCH", body: changes, headers }).then(
      ({ content }) => setShown(content),
      setError,
    );
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const { content } = await ask(path, { method: "PATCH", body: { ...changes, why }, headers });
      done(content.result);
    } catch (refusal) {
      setError(refusal);
      setBusy(false);
    }
  };
  const isOvertaken = error?.status === 412;
  return html`<${Dialog} title=${html`Change <bdi>${name}</bdi>`} onClose=${onClose}>
    <form onSubmit=${submit}>
      ${shown && html`<${Differences} from=${shown.from} to=${shown.to} />`}
      ${shown?.warnings.map((text) => html`<p class="warning">${text}</p>`)}
      <label><span>Reason (it is kept in the history)</span>
        <input type="text" required maxlength="1000" value=${why} onInput=${(e) => setWhy(e.target.value)} /></label>
      ${isOvertaken && html`<p class="failure" role="alert">Somebody else changed the group meanwhile. Close this, look at its
        new state, and ask again.</p>`}
      ${error && !isOvertaken && html`<${Failure} error=${error} />`}
      <p class="actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="main" disabled=${isBusy || !shown || isOvertaken}>Apply</button>
      </p>
    </form>
  </${Dialog}>`;
}

const asText = (value) => (value === null ? "unlimited" : typeof value === "object" ? JSON.stringify(value) : String(value));

/** The fields that differ between two states of a group; null: there was none. */
export function Differences({ from, to }) {
  const fields = Object.keys(to ?? from ?? {}).filter(
    (field) => !["group", "parent", "updated_at", "updated_by"].includes(field) &&
      (from === null || to === null ? asText((to ?? from)[field]) !== "unlimited" : asText(from[field]) !== asText(to[field])),
  );
  if (!fields.length) return html`<p>Nothing changes.</p>`;
  const said = from === null ? "created" : to === null ? "deleted" : null;
  if (said) return html`<p>The group is <b>${said}</b>.</p>`;
  return html`<ul class="differences">
    ${fields.map((field) => html`<li><code>${field}</code> from <b>${asText(from[field])}</b> to <b>${asText(to[field])}</b></li>`)}
  </ul>`;
}

function NumberField({ label, value, unit, onChange, least = 0 }) {
  const typed = (event) => {
    const number = event.target.valueAsNumber;
    if (!Number.isNaN(number) && number >= least) onChange(number);
  };
  return html`<label><span>${label}${unit && html` <span class="hint">${unit}</span>`}</span>
    <input type="number" min=${least} step="any" value=${value ?? ""} placeholder="unlimited" onInput=${typed} /></label>`;
}

export function WhatIf({ group, name, dimension, series, asked, change, result, done, mayChange }) {
  const [isApplying, setApplying] = useState(false);
  const [said, setSaid] = useState("");
  const now = group.content;
  const quota = asked?.quota !== undefined ? asked.quota : now?.[`${dimension}_per_s`] ?? null;
  const used = Math.max(1e-9, ...sumOf(series.brokers.map((b) => b.peak_per_s)).filter((v) => v !== null));
  const top = Math.max(2 * used, 2 * (now?.[`${dimension}_per_s`] ?? 0), quota ?? 0);
  const per = rate(1, dimension).replace(/^1 /, "");
  const changes = asked ? changesOf(asked, dimension) : {};
  const hasChanges = Object.keys(changes).length > 0;
  const applied = (outcome) => {
    setApplying(false);
    setSaid(outcome === "unchanged" ? "The group has these values already." : "The change is made. The job follows it in its next round.");
    done();
  };
  return html`<aside class="what-if" aria-labelledby="what-if">
    <h2 id="what-if">What if?</h2>
    <p class="hint">On the recorded use of this time. Nothing changes until you apply it.</p>
    <${NumberField} label="Quota" unit=${per} value=${quota} onChange=${(v) => change({ quota: v })} />
    <input type="range" aria-label="Quota" min="0" max=${top} step=${top / 200} value=${quota ?? top}
      aria-valuetext=${rate(quota, dimension, "unlimited")} onInput=${(e) => change({ quota: Number(Number(e.target.value).toPrecision(3)) })} />
    <${NumberField} label="Floor" unit=${`${per}, guaranteed within the parent`} value=${asked?.floor ?? now?.[`floor_${dimension}_per_s`] ?? 0} onChange=${(v) => change({ floor: v })} />
    <${NumberField} label="Weight" unit="among the siblings" least=${1e-9} value=${asked?.weight ?? now?.weight ?? 1} onChange=${(v) => change({ weight: v })} />
    <${Choice} label="Law" value=${asked?.law ?? ""} onChange=${(law) => change({ law: law || undefined })}
      options=${[["", "the job's"], ...LAWS.map((law) => [law, law])]} />
    ${asked && html`<p class="actions">
      <button type="button" onClick=${done}>Reset</button>
      ${mayChange && html`<button type="button" class="main" disabled=${!hasChanges || !now} onClick=${() => setApplying(true)}>Apply…</button>`}
    </p>`}
    ${asked && !mayChange && html`<p class="hint">To apply it you need the role operator for this group.</p>`}
    ${asked?.law && html`<p class="hint">The law is a setting of the job: <code>law: {name: ${asked.law}}</code> in its settings file, then a restart.</p>`}
    <${Failure} error=${result.error} />
    ${asked && html`<${Result} content=${result.content} dimension=${dimension} name=${name} />`}
    <p role="status" class="good">${said}</p>
    ${isApplying && html`<${Apply} name=${name} group=${group} changes=${changes} done=${applied} onClose=${() => setApplying(false)} />`}
  </aside>`;
}

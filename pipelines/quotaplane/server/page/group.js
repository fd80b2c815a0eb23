// One group: its use, limits and quota over time, reasons, what if, and its changes.
import { html, useEffect, useMemo, useState } from "./vendor/preact-htm.js";
import { query, useAnswer } from "./api.js";
import { Changes } from "./changes.js";
import { Chart } from "./chart.js";
import { DIMENSIONS } from "./declared.js";
import { colourOf, duration, named, rate, time } from "./format.js";
import { Buttons, Empty, Failure, groupLink } from "./parts.js";
import { Reading } from "./reading.js";
import { aligned, sumOf, useWhatIf, WhatIf } from "./what_if.js";

const RANGES = [
  ["15m", "15 min"],
  ["1h", "1 h"],
  ["6h", "6 h"],
  ["1d", "1 day"],
  ["7d", "7 days"],
];
const EVERY_MS = { "15m": 5000, "1h": 15000, "6h": 60000 };
const POINTS = 300;
const SHOWN_FIRST = 6;

/** The part of a name that is its tenant. */
export const tenantOf = (group) => group.split(/[/:]/, 1)[0];

function Key() {
  return html`<p class="key" aria-hidden="true">
    <span><i class="line solid"></i> used</span> <span><i class="line steps"></i> limits</span>
    <span><i class="line dots"></i> demand, as far as it is known</span>
    <span><i class="line quota"></i> quota: drag it to ask what if</span>
  </p>`;
}

/** Charts of all brokers together and of each. */
function Charts({ series, dimension, cursor, setCursor, hidden, asked, changeQuota, result }) {
  const times = useMemo(() => series.times.map((ms) => ms / 1000), [series]);
  const { brokers } = series;
  const quotaNow = series.quota_per_s.at(-1);
  const wanted = asked?.quota !== undefined ? asked.quota : quotaNow;
  const changed = useMemo(() => {
    const found = new Map();
    const last = Math.max(-1, ...brokers.map((b) => b.used_per_s.findLastIndex((used) => used !== null)));
    for (const line of result?.brokers ?? []) {
      const limits = aligned(line.changed_limit_per_s, result.times, series.times);
      // Behind the last report nothing is recorded that a law could decide on.
      found.set(line.broker, limits.map((limit, place) => (place > last ? null : limit)));
    }
    return found;
  }, [result, series]);
  const together = useMemo(() => {
    const sums = [
      { values: sumOf(brokers.map((b) => b.used_per_s)), colour: "--accent", fill: "--accent-wash", width: 2 },
      { values: sumOf(brokers.map((b) => b.limit_per_s)), colour: "--muted", steps: true },
      { values: sumOf(brokers.map((b) => b.demand_per_s)), colour: "--muted", dash: [2, 3] },
      { values: series.quota_per_s, colour: "--text", steps: true, width: 2 },
    ];
    if (changed.size) sums.push({ values: sumOf([...changed.values()]), colour: "--change", steps: true, width: 2 });
    return sums;
  }, [series, changed]);
  const each = useMemo(
    () =>
      brokers.flatMap((b, i) => {
        if (hidden.has(b.broker)) return [];
        const colour = colourOf(i);
        const lines = [
          { values: b.used_per_s, colour, width: 2 },
          { values: b.limit_per_s, colour, dash: [6, 3], steps: true },
        ];
        if (changed.has(b.broker)) lines.push({ values: changed.get(b.broker), colour, dash: [1, 3], steps: true, width: 3 });
        return lines;
      }),
    [series, hidden, changed],
  );
  const quota = wanted === null || wanted === undefined ? null : { value: wanted, isChanged: wanted !== quotaNow, top: Math.max(wanted, quotaNow ?? 0) };
  return html`
    <section aria-labelledby="together">
      <h2 id="together">All brokers together</h2>
      <${Key} />
      <${Chart} label=${`${named(dimension)} of all brokers`} times=${times} series=${together} cursor=${cursor}
        onCursor=${setCursor} quota=${quota} onQuota=${changeQuota} />
    </section>
    <section aria-labelledby="each">
      <h2 id="each">By broker <span class="hint">solid: used; dashed: its limit${changed.size ? "; dotted: its limit with the change" : ""}</span></h2>
      <${Chart} label=${`${named(dimension)} by broker`} times=${times} series=${each} cursor=${cursor} onCursor=${setCursor} height=${220} />
    </section>
  `;
}

/** Which brokers are not drawn: all after the first ones, until somebody chooses. */
function useHidden(brokers) {
  const [chosen, setChosen] = useState(null);
  const hidden = useMemo(
    () => chosen ?? new Set((brokers ?? []).slice(SHOWN_FIRST).map((b) => b.broker)),
    [chosen, brokers],
  );
  const toggle = (broker) => {
    const next = new Set(hidden);
    if (!next.delete(broker)) next.add(broker);
    setChosen(next);
  };
  return [hidden, toggle];
}

function Title({ group, name }) {
  const parent = group?.parent;
  return html`<h1>
    ${parent && html`<a class="hint" href=${groupLink(parent)}><bdi>${parent}</bdi></a> <span class="hint">›</span> `}
    <bdi>${name}</bdi>
    ${group && group.mode !== "hard" && html` <span class="tag">${group.mode}</span>`}
    ${group && group.enforcement_percent < 100 && html` <span class="tag">on ${group.enforcement_percent} % of the brokers</span>`}
  </h1>`;
}

export function Group({ name, options, setOptions, may }) {
  const group = useAnswer(`groups/${encodeURIComponent(name)}`, 15000);
  const quotas = DIMENSIONS.filter((d) => (group.content?.[`${d}_per_s`] ?? null) !== null);
  const dimension = DIMENSIONS.includes(options.dimension) ? options.dimension : quotas[0] ?? DIMENSIONS[0];
  const range = RANGES.some(([r]) => r === options.range) ? options.range : "1h";
  const [asked, setAsked] = useState(null);
  const [cursor, setCursor] = useState(null);
  const every = asked ? 0 : EVERY_MS[range] ?? 0;
  const isKnown = group.content !== null || group.error !== null;
  const path = isKnown ? `series${query({ group: name, dimension, since: range, points: POINTS })}` : null;
  const series = useAnswer(path, every);
  const { content } = series;
  const result = useWhatIf(asked && content ? { group: name, dimension, since: content.since, until: content.until, points: POINTS, asked } : null);
  const [hidden, toggle] = useHidden(content?.brokers);
  useEffect(() => setAsked(null), [dimension, range]);
  useEffect(() => setCursor(null), [dimension, range]);
  const change = (changed) => setAsked((before) => ({ ...before, ...changed }));
  const done = () => {
    setAsked(null);
    group.reload();
    series.reload();
  };
  if (group.error?.status === 404 && !content?.brokers.length)
    return html`<${Title} name=${name} /><${Empty}>
      <p>There is no group of this name. <a href="#/">All groups</a></p>
      <${Changes} name=${name} mayChange=${may("operator", tenantOf(name))} changed=${done} />
    </${Empty}>`;
  const index = cursor === null ? null : Math.min(cursor, (content?.times.length ?? 1) - 1);
  return html`
    <${Title} group=${group.content} name=${name} />
    <div class="tools">
      <${Buttons} label="Dimension" value=${dimension} onChange=${(d) => setOptions({ dimension: d })}
        options=${(quotas.includes(dimension) ? quotas : [dimension, ...quotas]).map((d) => [d, named(d)])} />
      <${Buttons} label="Time" value=${range} options=${RANGES} onChange=${(r) => setOptions({ range: r })} />
      ${group.content && html`<span class="hint">quota <b>${rate(group.content[`${dimension}_per_s`], dimension, "unlimited")}</b></span>`}
      ${content && html`<span class="hint">points of ${duration(content.step_ms / 1000)}${every ? "" : `, until ${time(content.until)}`}</span>`}
    </div>
    <${Failure} error=${series.error} retry=${series.reload} />
    ${content && content.brokers.length > 0 && html`
      <div class="columns">
        <div>
          <${Charts} series=${content} dimension=${dimension} cursor=${index} setCursor=${setCursor} hidden=${hidden}
            asked=${asked} changeQuota=${(quota) => change({ quota: rounded(quota) })} result=${result.content} />
          <${Reading} name=${name} series=${content} dimension=${dimension} index=${index} hidden=${hidden} toggle=${toggle} />
        </div>
        <${WhatIf} group=${group} name=${name} dimension=${dimension} series=${content} asked=${asked} change=${change}
          result=${result} done=${done} mayChange=${may("operator", tenantOf(name))} />
      </div>`}
    ${content && content.brokers.length === 0 && html`<${Empty}>
      <p>No broker reported ${named(dimension)} of this group in this time. Choose a longer time, or see
        <a href="#/rejected">rejected reports</a>.</p>
    </${Empty}>`}
    <${Changes} name=${name} state=${group.etag} mayChange=${may("operator", tenantOf(name))} changed=${done} />
  `;
}

/** Three digits are enough for a dragged line. */
function rounded(value) {
  return Number(value.toPrecision(value >= 1000 ? 3 : 2));
}

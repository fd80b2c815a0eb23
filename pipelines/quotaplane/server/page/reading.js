// The figures of each broker at the time under the cursor, with the reason of its limit.
import { html, useState } from "./vendor/preact-htm.js";
import { query, useAnswer } from "./api.js";
import { NOTHING, amount, colourOf, duration, rate, time, utc } from "./format.js";
import { Dialog, Failure, Table, Time } from "./parts.js";

/** The newest change of a broker's limit up to a time. */
function reasonAt(series, broker, until_ms) {
  return series.reasons.find((r) => r.broker === broker && r.at_ms <= until_ms);
}

/** Everything that is recorded about a limit at a time. */
function Why({ name, broker, dimension, at, onClose }) {
  const answer = useAnswer(`why${query({ group: name, broker, at })}`);
  const limit = answer.content?.limits.find((l) => l.dimension === dimension);
  const facts = limit && [
    ["Limit", rate(limit.limit_per_s, dimension, "unlimited")],
    ["Reason", limit.reason ?? NOTHING],
    ["Used", rate(limit.used_per_s, dimension)],
    ["Throttled", rate(limit.throttled_per_s, dimension)],
    ["Demand that the law was given", rate(limit.demand_per_s, dimension, "not known: the broker used all it had")],
    ["Quota that the law divided", rate(limit.quota_per_s, dimension, "unlimited")],
    ["Quota of the group", html`${rate(limit.group_quota_per_s, dimension, "unlimited")}${limit.quota_changed_by && html`, set by <bdi>${limit.quota_changed_by}</bdi> <${Time} at=${limit.quota_changed_at} />`}`],
    ["Law", limit.law ?? NOTHING],
    ["Decided", html`<${Time} at=${limit.since} />, round ${limit.seq} of epoch ${limit.epoch}`],
    ["Lease", `${duration(limit.lease_s)}: so long it holds without being renewed`],
    ...Object.entries(limit.numbers).map(([key, value]) => [key.replaceAll("_", " "), value === null ? "unlimited" : amount(value, "").trim()]),
  ];
  return html`<${Dialog} title=${html`Why this limit of <bdi>${broker}</bdi>`} onClose=${onClose}>
    <p class="hint">as of <${Time} at=${at} /></p>
    <${Failure} error=${answer.error} retry=${answer.reload} />
    ${answer.content && !limit && html`<p>The broker had no limit in this dimension then.</p>`}
    ${facts && html`<dl>${facts.map(([term, text]) => html`<div><dt>${term}</dt><dd>${text}</dd></div>`)}</dl>`}
    <form method="dialog"><button class="main">Close</button></form>
  </${Dialog}>`;
}

export function Reading({ name, series, dimension, index, hidden, toggle }) {
  const [asked, setAsked] = useState(null);
  const { times, step_ms: step } = series;
  const last = times.findLastIndex((_, i) => series.brokers.some((b) => b.used_per_s[i] !== null));
  const place = index ?? Math.max(0, last);
  const at_ms = Math.min(times[place] + step, Date.parse(series.until));
  const figure = (line, key, whenNull) => rate(line[key][place], dimension, whenNull);
  const columns = [
    {
      title: "Broker",
      cell: (line) => html`<label class="line-choice">
        <input type="checkbox" checked=${!hidden.has(line.broker)} onChange=${() => toggle(line.broker)} />
        <i class="swatch" style=${{ background: `var(${colourOf(series.brokers.indexOf(line))})` }}></i>
        ${line.broker === null ? `the ${series.brokers_total - series.brokers.length + 1} others` : html`<bdi>${line.broker}</bdi>`}
      </label>`,
    },
    { title: "Used", isNumber: true, cell: (line) => figure(line, "used_per_s") },
    { title: "Limit", isNumber: true, cell: (line) => figure(line, "limit_per_s", "none") },
    { title: "Demand", isNumber: true, cell: (line) => figure(line, "demand_per_s", "not known") },
    { title: "Throttled", isNumber: true, cell: (line) => (line.throttled_per_s[place] ? figure(line, "throttled_per_s") : NOTHING) },
    {
      title: "Reason of the limit",
      cell: (line) => {
        if (line.broker === null) return NOTHING;
        const reason = reasonAt(series, line.broker, at_ms);
        const ask = () => setAsked({ broker: line.broker, at: new Date(at_ms).toISOString() });
        return html`<span class="reason">${reason?.reason ?? "as before this time"}</span>
          <button type="button" class="quiet" aria-label=${`Why this limit of ${line.broker}`} onClick=${ask}>Why?</button>`;
      },
    },
  ];
  return html`<section aria-labelledby="reading">
    <h2 id="reading">${index === null ? "The newest figures" : "Under the cursor"}
      <span class="hint" title=${utc(times[place])}>${time(times[place])} and the ${duration(step / 1000)} after it</span></h2>
    <${Table} label="Brokers at this time" columns=${columns} rows=${series.brokers} keyOf=${(line) => line.broker ?? ""} />
    ${asked && html`<${Why} name=${name} dimension=${dimension} ...${asked} onClose=${() => setAsked(null)} />`}
  </section>`;
}

// The brokers: which are silent, what they reach, what of theirs was refused.
import { html } from "./vendor/preact-htm.js";
import { query, useAnswer } from "./api.js";
import { NOTHING, ago, rate, whole } from "./format.js";
import { Empty, Failure, Search, Table, Time, groupLink } from "./parts.js";

const STATUS = { live: "good", stale: "bad", gone: "bad" };

const COLUMNS = [
  { title: "Broker", cell: (row) => html`<a href=${`#/brokers${query({ broker: row.broker })}`}><bdi>${row.broker}</bdi></a>` },
  {
    title: "Status",
    cell: (row) => html`<span class="tag ${STATUS[row.status] ?? ""}">${row.status ?? "unknown"}</span>
      ${row.since && html` since <${Time} at=${row.since} />`}`,
  },
  { title: "Last report", cell: (row) => html`<span title=${row.last_seen_at}>${ago(row.last_seen_at)}</span>` },
  { title: "Groups", isNumber: true, cell: (row) => whole(row.group_count) },
  { title: "Limits reached", hint: "Limits that it wants more than", isNumber: true, cell: (row) => whole(row.limits_reached) },
  {
    title: "Rejected",
    hint: "Its reports of the last minute that were refused",
    isNumber: true,
    cell: (row) => (row.rejected ? html`<a class="bad" href="#/rejected">${whole(row.rejected)}</a>` : NOTHING),
  },
];

const LIMITS = [
  { title: "Group", cell: (row) => html`<a href=${groupLink(row.group, row.dimension)}><bdi>${row.group}</bdi></a>` },
  { title: "Dimension", cell: (row) => row.dimension.replaceAll("_", " ") },
  { title: "Used", isNumber: true, cell: (row) => rate(row.used_per_s, row.dimension) },
  { title: "Limit", isNumber: true, cell: (row) => rate(row.limit_per_s, row.dimension, "unlimited") },
  { title: "Demand", isNumber: true, cell: (row) => rate(row.demand_per_s, row.dimension, "not known") },
  {
    title: "Lease ends",
    hint: "Then the broker falls back to its safe limit, if the limit is not sent again",
    cell: (row) => (row.lease_ends_at ? html`<${Time} at=${row.lease_ends_at} />` : NOTHING),
  },
  { title: "Reason", cell: (row) => row.reason ?? NOTHING },
];

function Limits({ broker }) {
  const { content, error, reload } = useAnswer(`limits${query({ broker, limit: 50 })}`, 5000);
  return html`<section aria-labelledby="limits">
    <h2 id="limits">Limits of <bdi>${broker}</bdi> <span class="hint">those that are used most first, at most 50</span></h2>
    <${Failure} error=${error} retry=${reload} />
    ${content && (content.limits.length
      ? html`<${Table} label="Limits" columns=${LIMITS} rows=${content.limits} />`
      : html`<p>The broker has no limit now.</p>`)}
  </section>`;
}

export function Brokers({ options, setOptions }) {
  const { content, error, reload } = useAnswer("brokers", 5000);
  const { search = "", broker } = options;
  const rows = (content?.brokers ?? []).filter((row) => row.broker.toLowerCase().includes(search.toLowerCase()));
  return html`
    <h1>Brokers</h1>
    <${Failure} error=${error} retry=${reload} />
    ${content && content.brokers.length === 0 && html`<${Empty}>
      <p>No broker has reported yet. <code>docs/reference/integrate.md</code> says what a broker sends; reports that could not be
        used are under <a href="#/rejected">Rejected</a>.</p>
    </${Empty}>`}
    ${content && content.brokers.length > 0 && html`
      <div class="tools" role="search">
        <${Search} label="Search brokers" value=${search} onChange=${(text) => setOptions({ search: text })} />
        <span class="hint">${whole(rows.length)} of ${whole(content.brokers.length)}; at most 200 are shown</span>
      </div>
      <${Table} label="Brokers" columns=${COLUMNS} rows=${rows.slice(0, 200)} keyOf=${(row) => row.broker}
        rowClass=${(row) => (row.broker === broker ? "chosen" : "")} />`}
    ${broker && html`<${Limits} key=${broker} broker=${broker} />`}
  `;
}

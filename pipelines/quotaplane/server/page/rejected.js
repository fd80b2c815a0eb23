// Reports that could not be used, by cause and sender.
import { html } from "./vendor/preact-htm.js";
import { query, useAnswer } from "./api.js";
import { NOTHING, whole } from "./format.js";
import { Buttons, Empty, Failure, Pager, pageOf, Table, Time } from "./parts.js";

const RANGES = [
  ["15m", "15 min"],
  ["1h", "1 h"],
  ["1d", "1 day"],
  ["7d", "7 days"],
];
const PAGE = 25;
const sender = (row) => (row.sender === null ? html`<span class="hint">not readable</span>` : html`<bdi>${row.sender}</bdi>`);

const CAUSES = [
  { title: "Reason", cell: (row) => html`<code>${row.reason}</code>` },
  { title: "Sender", hint: "The broker that the report names", cell: sender },
  { title: "Reports", isNumber: true, cell: (row) => whole(row.reports) },
  { title: "Last", cell: (row) => html`<${Time} at=${row.last_at} />` },
  { title: "What was wrong", cell: (row) => html`<span class="long"><bdi>${row.detail ?? NOTHING}</bdi></span>` },
];

const LETTERS = [
  { title: "Round", cell: (row) => html`<${Time} at=${row.round_at} />` },
  { title: "Published", cell: (row) => html`<${Time} at=${row.published_at} />` },
  { title: "Reason", cell: (row) => html`<code>${row.reason}</code>` },
  { title: "Sender", cell: sender },
  { title: "What was wrong", cell: (row) => html`<span class="long"><bdi>${row.detail ?? NOTHING}</bdi></span>` },
  { title: "Position", hint: "In the topic", cell: (row) => html`<span class="long"><bdi>${row.position ?? NOTHING}</bdi></span>` },
];

export function Rejected({ options, setOptions }) {
  const { range = "1d", offset = "0" } = options;
  const causes = useAnswer(`rejected/summary${query({ since: range })}`, 10000);
  const letters = useAnswer(`rejected${query({ since: range, limit: PAGE + 1, offset })}`, 10000);
  const { rows, more } = pageOf(letters.content?.rows ?? [], PAGE);
  return html`
    <h1>Rejected reports</h1>
    <div class="tools">
      <${Buttons} label="Time" value=${range} options=${RANGES} onChange=${(r) => setOptions({ range: r, offset: null })} />
    </div>
    <${Failure} error=${causes.error ?? letters.error} retry=${() => (causes.reload(), letters.reload())} />
    ${causes.content && causes.content.rows.length === 0 && html`<${Empty}><p>No report was rejected in this time.</p></${Empty}>`}
    ${causes.content && causes.content.rows.length > 0 && html`
      <h2>By cause and sender</h2>
      <${Table} label="Rejected reports by cause and sender" columns=${CAUSES} rows=${causes.content.rows} />`}
    ${rows.length > 0 && html`
      <h2>The newest</h2>
      <${Table} label="The newest rejected reports" columns=${LETTERS} rows=${rows} />
      <${Pager} total=${null} shown=${rows.length} more=${more} offset=${Number(offset)} size=${PAGE} go=${(o) => setOptions({ offset: o || null })} />`}
  `;
}

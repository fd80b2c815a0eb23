// All groups beside their quotas, the job, and the map of groups and brokers.
import { html } from "./vendor/preact-htm.js";
import { query, useAnswer } from "./api.js";
import { DIMENSIONS, STANDING } from "./declared.js";
import { NOTHING, ago, duration, named, percent, rate, whole } from "./format.js";
import { HeatMap } from "./heat_map.js";
import { Bar, Choice, Empty, Failure, Pager, Search, Table, Time, groupLink } from "./parts.js";

const EVERY_MS = 3000;
const PAGE = 25;
const LATE_S = 120;
const MOST_USED = "-used_part";
const SORTS = [
  [MOST_USED, "Most used"],
  ["worst_share", "Most unfair"],
  ["-throttled", "Most throttled"],
  ["group", "Name"],
];
const UNREPORTED =
  "No broker reports this group, and nobody changed it for a day. Is its name the one that brokers use?";

function Job({ job }) {
  const isLate = job.age_s > LATE_S;
  return html`<p class="job ${isLate ? "late" : ""}">
    <span>
      Last round <b>${duration(Math.round(job.age_s))}</b> ago at <${Time} at=${job.round_at} />
      ${isLate && html` – <strong>the job is down or hangs: its limits run out with their leases</strong>`}
    </span>
    <span>lag <b>${duration(job.lag_s)}</b></span>
    ${job.law && html`<span>law <b>${job.law}</b></span>`}
    <span>in the last minute <b>${whole(job.rounds)}</b> rounds, <b>${whole(job.reports)}</b> reports,${" "}
      <a href="#/rejected"><b>${whole(job.rejected)}</b> rejected</a>,${" "}
      ${job.outdated > 0 && html`<abbr title="seen before, or older than a report already used; if they go on, two agents have the same broker name"><b>${whole(job.outdated)}</b> outdated</abbr>, `}
      <b>${whole(job.limits)}</b> limits sent</span>
  </p>`;
}

function NoJob() {
  return html`<${Empty}>
    <h2>No round is recorded yet</h2>
    <p>The quota job has not run with this history. Start it with the settings file of this server:</p>
    <pre>quotaplane run quota --conf FILE</pre>
    <p>A group has a quota after <code>quotaplane groups put NAME --publish-messages-per-s 1000 --conf FILE</code>.</p>
  </${Empty}>`;
}

/** Counts that sort the table when they are pressed. */
function Counts({ counts, sort, choose }) {
  const tiles = [
    ["Groups", counts.groups, null, ""],
    ["Over quota", counts.over_quota, MOST_USED, `They use more than ${percent(STANDING.over)} of a quota`],
    ["Near quota", counts.near_quota, MOST_USED, `They use ${percent(STANDING.near)} of a quota or more`],
    ["Unfair", counts.unfair, "worst_share", `A broker that wants more has less than ${percent(STANDING.unfair)} of its share`],
    ["Throttled", counts.throttled, "-throttled", "Brokers refused or delayed something in the last minute"],
  ];
  const brokers = `${whole(counts.brokers_live)} live`;
  return html`<div class="tiles">
    ${tiles.map(([title, count, by, hint]) =>
      by === null
        ? html`<div class="tile"><b>${whole(count)}</b><span>${title}</span></div>`
        : html`<button type="button" class="tile ${count && title !== "Near quota" ? "bad" : ""}" title=${hint}
            aria-pressed=${sort === by && title !== "Near quota"} onClick=${() => choose(by)}>
            <b>${whole(count)}</b><span>${title}</span>
          </button>`,
    )}
    <a class="tile ${counts.stale_brokers ? "bad" : ""}" href="#/brokers">
      <b>${counts.stale_brokers ? `${whole(counts.stale_brokers)} stale` : brokers}</b>
      <span>${counts.stale_brokers ? `brokers, ${brokers}` : "brokers"}</span>
    </a>
  </div>`;
}

const COLUMNS = [
  {
    title: "Group",
    cell: (row) => html`<a href=${groupLink(row.group, row.dimension)}><bdi>${row.group}</bdi></a>
      ${row.mode !== "hard" && html` <span class="tag">${row.mode}</span>`}
      ${row.unreported && html` <abbr class="tag" title=${UNREPORTED}>no reports</abbr>`}`,
  },
  { title: "Dimension", cell: (row) => named(row.dimension) },
  {
    title: "Of the quota",
    isNumber: true,
    cell: (row) => html`<span class="part"><${Bar} part=${row.used_part} /><span class="percent">${percent(row.used_part, "> 9,999 %")}</span></span>`,
  },
  { title: "Used", isNumber: true, cell: (row) => rate(row.used_per_s, row.dimension) },
  { title: "Quota", isNumber: true, cell: (row) => rate(row.quota_per_s, row.dimension) },
  { title: "Limits", hint: "Sum of the brokers' limits", isNumber: true, cell: (row) => rate(row.limits_per_s, row.dimension) },
  {
    title: "Throttled",
    hint: "Refused or delayed, as far as brokers report it",
    isNumber: true,
    cell: (row) => (row.throttled_per_s ? rate(row.throttled_per_s, row.dimension) : NOTHING),
  },
  {
    title: "Worst share",
    hint: "The least limit of a broker that wants more, as a part of what it wants or of its fair share, whichever is less",
    isNumber: true,
    cell: (row) => html`<span class=${row.worst_share !== null && row.worst_share < STANDING.unfair ? "bad" : ""}>${percent(row.worst_share)}</span>`,
  },
  {
    title: "Brokers",
    isNumber: true,
    cell: (row) => html`${whole(row.brokers)}${row.stale ? html` <span class="bad">${whole(row.stale)} stale</span>` : ""}`,
  },
];

export function Glance({ options, setOptions }) {
  const { search = "", dimension = "", sort = MOST_USED, offset = "0" } = options;
  const asked = { search, dimension, sort, limit: PAGE, offset };
  const status = useAnswer(`status${query(asked)}`, EVERY_MS);
  const map = useAnswer(`heat-map${query(asked)}`, EVERY_MS);
  const { content } = status;
  const choose = (changed) => setOptions({ offset: null, ...changed });
  return html`
    <h1 class="unseen">Groups</h1>
    <${Failure} error=${status.error} retry=${status.reload} />
    ${content && (content.job ? html`<${Job} job=${content.job} />` : html`<${NoJob} />`)}
    ${content && html`<${Counts} counts=${content.counts} sort=${sort} choose=${(by) => choose({ sort: by })} />`}
    <div class="tools" role="search">
      <${Search} label="Search groups" value=${search} onChange=${(text) => choose({ search: text })} />
      <${Choice} label="Dimension" value=${dimension} onChange=${(v) => choose({ dimension: v })}
        options=${[["", "all"], ...DIMENSIONS.map((d) => [d, named(d)])]} />
      <${Choice} label="Order" value=${sort} options=${SORTS} onChange=${(v) => choose({ sort: v })} />
      ${content && html`<span class="hint" title=${content.as_of}>as of ${ago(content.as_of)}</span>`}
    </div>
    ${content && content.groups.length > 0 && html`
      <${Table} label="Groups beside their quotas" columns=${COLUMNS} rows=${content.groups}
        keyOf=${(row) => `${row.group} ${row.dimension}`} />
      <${Pager} total=${content.total} offset=${Number(offset)} size=${PAGE} go=${(o) => setOptions({ offset: o || null })} />`}
    ${content && content.total === 0 && content.job && html`<${Empty}>
      ${search || dimension
        ? html`<p>No group with a quota fits. <button type="button" onClick=${() => choose({ search: null, dimension: null })}>Show all</button></p>`
        : html`<p>No group has a quota yet: <code>quotaplane groups put NAME --publish-messages-per-s 1000 --conf FILE</code></p>`}
    </${Empty}>`}
    <${HeatMap} answer=${map} />
  `;
}

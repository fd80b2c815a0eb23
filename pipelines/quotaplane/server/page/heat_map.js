// Groups and brokers: how much of its limit each broker uses.
import { html } from "./vendor/preact-htm.js";
import { named, percent, rate } from "./format.js";
import { Failure, groupLink } from "./parts.js";

/** The colour step of a part of a limit: 0 (unused) to 10 (all of it), 11 above. */
function step(part) {
  if (part === null) return "none";
  return part > 1.0005 ? 11 : Math.max(0, Math.min(10, Math.round(part * 10)));
}

function Cell({ content, g, b }) {
  const { dimension } = content;
  const used = content.used_per_s[g][b];
  if (used === null) return html`<td class="heat none"><span class="unseen">not reported</span></td>`;
  const part = content.part[g][b];
  const limit = rate(content.limit_per_s[g][b], dimension, "unlimited");
  const demand = content.demand_per_s[g][b];
  const wants = demand === null ? "" : `, wants ${rate(demand, dimension)}`;
  const about = `${content.groups[g]} on ${content.brokers[b]}: ${rate(used, dimension)} used, limit ${limit}${wants}`;
  return html`<td class=${`heat step-${step(part)}`} title=${about}>
    <span>${part === null ? "∞" : percent(part).replace(" %", "")}</span>
  </td>`;
}

export function HeatMap({ answer }) {
  const { content, error, reload } = answer;
  if (error) return html`<${Failure} error=${error} retry=${reload} />`;
  if (!content || !content.groups.length || !content.brokers.length) return null;
  const hidden = content.brokers_total - content.brokers.length;
  return html`<section>
    <h2 id="map-title">Where it is used
      <span class="hint">percent of the broker's limit, ${named(content.dimension)}${hidden > 0 ? `; ${hidden} more brokers are not shown` : ""}</span>
    </h2>
    <div class="scrolls map-card" tabindex="0" role="region" aria-label="Map of groups and brokers">
      <table class="map">
        <thead>
          <tr>
            <th scope="col">Group</th>
            ${content.brokers.map((broker) => html`<th scope="col" class="broker" title=${broker}><bdi>${broker}</bdi></th>`)}
          </tr>
        </thead>
        <tbody>
          ${content.groups.map(
            (group, g) => html`<tr key=${group}>
              <th scope="row"><a href=${groupLink(group, content.dimension)}><bdi>${group}</bdi></a></th>
              ${content.brokers.map((broker, b) => html`<${Cell} key=${broker} content=${content} g=${g} b=${b} />`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p class="scale" aria-hidden="true">
      unused ${[...Array(11).keys()].map((n) => html`<span class=${`heat step-${n}`}></span>`)} all of it
      <span class="heat step-11"></span> more <span class="heat step-none"></span> no limit
    </p>
  </section>`;
}

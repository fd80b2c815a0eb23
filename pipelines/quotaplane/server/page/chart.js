// Lines over time, drawn by uPlot; with a quota line that can be dragged and a cursor for the keyboard.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { short } from "./format.js";

const NEAR_PX = 9;
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });

/** The colour that a CSS variable stands for now; a canvas does not know `light-dark()`. */
function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Times on the axis: the day where one begins, else the time of day. */
function moments(plot, seconds, axis, space, step) {
  return seconds.map((second) => {
    const date = new Date(second * 1000);
    if (step >= 86400 || (date.getHours() === 0 && date.getMinutes() === 0)) return DAY.format(date);
    return (step < 60 ? SECONDS : CLOCK).format(date);
  });
}

/** Rises with each change between light and dark: what is drawn has to be drawn again. */
export function useTheme() {
  const [times, setTimes] = useState(0);
  useEffect(() => {
    const changed = () => setTimes((n) => n + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    window.addEventListener("quotaplane-theme", changed);
    system.addEventListener("change", changed);
    return () => {
      window.removeEventListener("quotaplane-theme", changed);
      system.removeEventListener("change", changed);
    };
  }, []);
  return times;
}

function drawQuota(plot, quota) {
  if (!quota?.isChanged) return;
  const y = Math.round(plot.valToPos(quota.value, "y", true));
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("--change");
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

/** Let the quota line follow the pointer; `current` has the newest properties. */
function makeDraggable(plot, current) {
  const { over } = plot;
  let isDragging = false;
  const isNear = (event) => {
    const { quota, onQuota } = current();
    return quota !== null && onQuota && Math.abs(plot.valToPos(quota.value, "y") - event.offsetY) <= NEAR_PX;
  };
  over.addEventListener("pointerdown", (event) => {
    if (!isNear(event)) return;
    isDragging = true;
    over.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  over.addEventListener("pointermove", (event) => {
    over.style.cursor = isDragging || isNear(event) ? "ns-resize" : "";
    if (!isDragging) return;
    const y = Math.max(0, Math.min(over.clientHeight, event.offsetY));
    current().onQuota(Math.max(0, plot.posToVal(y, "y")));
  });
  over.addEventListener("pointerup", () => (isDragging = false));
  over.addEventListener("pointercancel", () => (isDragging = false));
}

function options(current, series, width, height) {
  const line = { stroke: colour("--grid"), width: 1 };
  const axis = { stroke: colour("--muted"), grid: line, ticks: line, font: "12px system-ui, sans-serif" };
  return {
    width,
    height,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: {
      x: { time: true },
      y: { range: (plot, least, most) => [0, Math.max(most ?? 0, (current().quota?.top ?? 0), 1e-9) * 1.08] },
    },
    axes: [{ ...axis, values: moments }, { ...axis, size: 56, values: (plot, values) => values.map(short) }],
    series: [
      {},
      ...series.map((s) => ({
        stroke: colour(s.colour),
        width: s.width ?? 1.5,
        dash: s.dash,
        fill: s.fill ? colour(s.fill) : undefined,
        paths: s.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: {
      setCursor: [(plot) => current().onCursor(plot.cursor.idx ?? null)],
      draw: [(plot) => drawQuota(plot, current().quota)],
      ready: [(plot) => makeDraggable(plot, current)],
    },
  };
}

/**
 * A chart of lines.
 *
 * `times`: seconds; `series`: `{values, colour, width, dash, fill, steps}` where colours are names of
 * CSS variables; `quota`: null or `{value, top, isChanged}`, where `top` is the least height of the
 * axis; `onCursor(index)`, `onQuota(value)`: what the pointer or the arrow keys chose.
 */
export function Chart({ label, times, series, quota = null, onCursor, onQuota = null, height = 260, cursor }) {
  const place = useRef(null);
  const plot = useRef(null);
  const newest = useRef({});
  newest.current = { quota, onCursor, onQuota };
  const theme = useTheme();
  const shape = JSON.stringify(series.map(({ values, ...look }) => look));
  useEffect(() => {
    const width = () => Math.max(200, place.current.clientWidth);
    plot.current = new uPlot(options(() => newest.current, series, width(), height), [times, ...series.map((s) => s.values)], place.current);
    const resized = new ResizeObserver(() => plot.current.setSize({ width: width(), height }));
    resized.observe(place.current);
    return () => {
      resized.disconnect();
      plot.current.destroy();
    };
  }, [shape, theme, height]);
  useEffect(() => {
    plot.current.setData([times, ...series.map((s) => s.values)]);
  }, [times, series]);
  useEffect(() => {
    // A dragged line moves over an axis that stays; the rest of the time the axis follows.
    plot.current.redraw(false, quota?.top === undefined);
  }, [quota?.value, quota?.top, quota?.isChanged]);
  const move = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10, Home: -times.length, End: times.length }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(times.length - 1, (cursor ?? times.length - 1) + by));
    const left = plot.current.valToPos(times[index], "x");
    plot.current.setCursor({ left, top: 0 });
    onCursor(index);
  };
  return html`<div class="chart" ref=${place} tabindex="0" role="slider" aria-label=${`${label}; arrow keys move the time`}
    aria-valuemin="0" aria-valuemax=${times.length - 1} aria-valuenow=${cursor ?? times.length - 1}
    aria-valuetext=${SECONDS.format(new Date(times[cursor ?? times.length - 1] * 1000))} onKeyDown=${move}></div>`;
}

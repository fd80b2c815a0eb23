// Numbers with their units, times and durations, as people read them.

import { UNITS } from "./declared.js";

const SHORT = { messages: "msg", bytes: "B", mutations: "partitions", milliseconds: "ms" };
const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export const NOTHING = "–";

const COLOURS = 8;

/** The colour of a broker's line, by its place: a variable of style.css. */
export const colourOf = (place) => `--line-${place % COLOURS}`;

const unitOf = (dimension) => SHORT[UNITS[dimension]] ?? UNITS[dimension] ?? "";

/** "publish messages" */
export const named = (dimension) => dimension.replaceAll("_", " ");

function scaled(value) {
  for (const [size, prefix] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= size) return [value / size, prefix];
  return [value, ""];
}

/** "1,200 msg", "1.2 MB"; bytes from 1,000 on and the rest from 100,000 on with a prefix. */
export function amount(value, dimension) {
  if (value === null || value === undefined) return NOTHING;
  const unit = unitOf(dimension);
  if (unit === "B" || Math.abs(value) >= 1e5) {
    const [number, prefix] = scaled(value);
    return `${NUMBER.format(number)} ${prefix}${unit === "B" || !prefix ? unit : ` ${unit}`}`;
  }
  return `${NUMBER.format(Math.abs(value) < 0.0005 ? 0 : value)} ${unit}`;
}

/** The same per second; `whenNull` for a rate that is null. */
export function rate(value, dimension, whenNull = NOTHING) {
  return value === null || value === undefined ? whenNull : `${amount(value, dimension)}/s`;
}

/** A short number for an axis: "1.2k". */
export function short(value) {
  const [number, prefix] = scaled(value);
  return `${+number.toPrecision(3)}${prefix}`;
}

export const whole = (value) => (value === null || value === undefined ? NOTHING : WHOLE.format(value));

/** A part as a percentage: 0.834 is "83 %". Null: infinite, something of a quota of 0. */
export function percent(part, whenNull = NOTHING) {
  if (part === null || part === undefined) return whenNull;
  return part > 99.995 ? "> 9,999 %" : `${WHOLE.format(part * 100)} %`;
}

/** "12:03:10", and the day if it is another one than today. */
export function time(moment) {
  if (moment === null || moment === undefined) return NOTHING;
  const date = new Date(moment);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? CLOCK.format(date) : `${DAY.format(date)} ${CLOCK.format(date)}`;
}

/** In UTC, for a tooltip. */
export const utc = (moment) => (moment ? new Date(moment).toISOString().replace(".000Z", "Z") : "");

/** "1.2 s", "3 min", "2 h 5 min" */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NOTHING;
  if (seconds < 60) return `${+seconds.toPrecision(2)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.round(hours / 24)} days`;
}

/** How long ago: "3 s ago". */
export function ago(moment) {
  if (!moment) return "never";
  return `${duration(Math.max(0, Math.round((Date.now() - new Date(moment)) / 1000)))} ago`;
}

// What the server declares in the page's head: dimensions with their units, laws.
const declared = (name) => JSON.parse(document.querySelector(`meta[name="${name}"]`).content);

/** The unit of each dimension by name, in the order of the declaration. */
export const UNITS = declared("dimensions");
export const DIMENSIONS = Object.keys(UNITS);
export const LAWS = declared("laws");
/** Parts of a quota (over, near) and of a fair share (unfair). */
export const STANDING = declared("standing");

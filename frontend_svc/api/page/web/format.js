// Numbers as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const NONE = "–";

export const count = (value) => (value === null ? NONE : whole.format(value));
export const compact = (value) => (value === null ? NONE : short.format(value));
export const share = (part, all) => (all ? `${((100 * part) / all).toFixed(part && part / all < 0.1 ? 1 : 0)} %` : NONE);
export const ms = (value) => (value >= 10_000 ? `${(value / 1000).toFixed(0)} s` : value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${value.toFixed(value < 10 ? 1 : 0)} ms`);

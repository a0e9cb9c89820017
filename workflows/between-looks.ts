/**
 * How long a run waits after so many looks at its groups before the next, in milliseconds: a second for the first 64, which are all that a
 * small iteration has, then ever longer, up to about two minutes. A look is 13 events of the run's history. So the two hours that an
 * iteration has by default stay under 10,000, also where 128 groups of 16 end trial by trial and each straggler's end is told.
 */
export function betweenLooks(looks: number): number {
  return 1000 * 2 ** Math.min(7, Math.max(0, Math.floor(looks / 16) - 3));
}

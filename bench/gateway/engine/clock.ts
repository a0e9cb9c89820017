/** Digits of a stamp: microseconds of a clock that all processes of this machine share. It wraps around after 2.8 hours. */
export const STAMP_DIGITS = 10;
const ROUND = 10n ** BigInt(STAMP_DIGITS);

export const stampNow = (): string => String((process.hrtime.bigint() / 1000n) % ROUND).padStart(STAMP_DIGITS, '0');

/** Returns the microseconds from one stamp to a later one. */
export const between = (from: number, to: number): number => (to >= from ? to - from : to - from + Number(ROUND));

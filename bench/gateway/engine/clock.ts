/** Microseconds of a clock that all processes of this machine share, in ten digits: they come round after 2.8 hours. */
export const STAMP_DIGITS = 10;
const ROUND = 10n ** BigInt(STAMP_DIGITS);

export const stampNow = (): string => String((process.hrtime.bigint() / 1000n) % ROUND).padStart(STAMP_DIGITS, '0');

/** Microseconds from one stamp to a later one. */
export const between = (from: number, to: number): number => (to >= from ? to - from : to - from + Number(ROUND));

/** Returns a time in seconds since 1970, as the gateway's API gives times. */
export const epochSeconds = (date: Date): number => date.getTime() / 1000;

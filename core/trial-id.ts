/** Ids of other programs may contain slashes, colons and at signs, which are percent-encoded in a path. */
export const TRIAL_ID = /^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,254}$/;

/** True when the text can be a trial's id. PostgreSQL refuses a query with some other texts (`\u0000`). */
export const isTrialId = (text: string): boolean => TRIAL_ID.test(text);

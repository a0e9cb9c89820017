/** The least weighted reward of a pass. A verifier that adds up shares, and weights that do, may give 0.9999999 for 1. */
export const LEAST_PASS = 1 - 1e-6;

/** Returns true if a trial with this weighted reward passed. */
export const isPass = (reward: number): boolean => reward >= LEAST_PASS;

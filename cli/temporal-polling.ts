/**
 * Arguments that set how often Temporal's development server looks for tasks. Its default of 20 times a second delays every task
 * by up to 50 ms, and a small iteration has some fifty tasks one after the other.
 */
export const TEMPORAL_POLLING = ['transfer', 'timer'].flatMap((queue) => ['--dynamic-config-value', `history.${queue}ProcessorMaxPollRPS=200`]);

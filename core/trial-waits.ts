/**
 * What a trial that is being opened waits for on its host, as the heartbeats of its opening say: engines that can serve it, the packages of its
 * agent, its image, its turn among the starts, its start itself.
 */
export const OPENING_STEPS = ['engine_room', 'packages', 'image', 'start_turn', 'start'] as const;
export type OpeningStep = (typeof OPENING_STEPS)[number];

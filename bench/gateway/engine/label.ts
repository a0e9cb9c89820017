/** The version label that the engine says, and the pool has: the first policy of the run `bench`. */
export const ENGINE_LABEL = 'bench@0';

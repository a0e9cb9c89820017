/** The label of the engine and the pool: the first policy of the run `bench`. */
export const ENGINE_LABEL = 'bench@0';

/** The weight version of the engine and the pool: the first policy of the run `bench`. */
export const ENGINE_WEIGHT_VERSION = 'bench@0';

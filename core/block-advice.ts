/** True when the reason why a run is blocked names the command that helps. */
export const namesRepair = (reason: string | null): boolean =>
  /npx trialgate (resume|redo|fork|export)/.test(reason ?? '');

/** The types of failures that only another model repairs. */
const OTHER_MODEL = ['MissingModel', 'BadModel'];
export const needsOtherModel = (type: string | null): boolean => type !== null && OTHER_MODEL.includes(type);

export const OTHER_MODEL_ADVICE =
  'The model of a run cannot change: name another one in the run file and start another run. Only if you repair the files of this model does `npx trialgate resume` help';

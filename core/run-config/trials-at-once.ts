/** The tokens a second that engines make for all calls together, by the number of calls under way. */
export type EngineSpeed = readonly { calls: number; tokensPerSecond: number }[];

/** What the model does for a trial: the tokens of all its calls, which follow each other, and the seconds that its agent has. */
export type TrialNeed = { tokens: number; seconds: number };

/** A trial that needs more of its time than this is cut too easily: other programs on the machine, or longer prompts, slow an engine down. */
const MOST_OF_ITS_TIME = 0.5;

/** Returns the seconds of a trial's calls while `trials` trials ask the engines at once. */
export function secondsOfTrial(speed: EngineSpeed, trials: number, { tokens }: Pick<TrialNeed, 'tokens'>): number {
  return (tokens * trials) / speedAt(speed, trials);
}

/**
 * Returns the most trials, from one to `most`, of which each ends in half of its time. `speed` has at least one measurement, and their numbers of calls rise.
 */
export function trialsAtOnce(speed: EngineSpeed, need: TrialNeed, most: number): number {
  let trials = most;
  while (trials > 1 && secondsOfTrial(speed, trials, need) > need.seconds * MOST_OF_ITS_TIME) trials -= 1;
  return trials;
}

/** Interpolates between two measurements. Beyond the last one an engine is taken to be no faster, as it is on a processor. */
function speedAt(speed: EngineSpeed, calls: number): number {
  const above = speed.find((each) => each.calls >= calls) ?? speed.at(-1);
  const below = speed.findLast((each) => each.calls <= calls) ?? { calls: 0, tokensPerSecond: 0 };
  if (!above) throw new RangeError('no speed was measured');
  if (above.calls <= below.calls) return above.tokensPerSecond;
  const share = (calls - below.calls) / (above.calls - below.calls);
  return below.tokensPerSecond + share * (above.tokensPerSecond - below.tokensPerSecond);
}

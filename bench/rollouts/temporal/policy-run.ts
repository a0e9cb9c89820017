import { eq } from 'drizzle-orm';
import { trials } from '../../../store/schema.ts';
import { Durations } from '../simulate/durations.ts';
import { QUANTILES, bandOf, measure, type Figures, type Share } from '../simulate/figures.ts';
import { settingsOf, type Policy } from '../policies.ts';
import { runIn, type Stage } from './stage.ts';
import { World } from './world.ts';

export type PolicyRunOptions = { steps: number; warmUp: number; medianSeconds: number; seed: number };
/** The figures that can be measured from outside. */
export type MeasuredFigures = Omit<Figures, 'idle'>;
export type PolicyRow = { policy: string; staleness: number; measured: MeasuredFigures; predicted: Figures };

/** Runs one policy with the real workflows, and simulates it over the same trials and steps. */
export async function runPolicy(stage: Stage, policy: Policy, options: PolicyRunOptions): Promise<PolicyRow> {
  const { rules, staleness } = policy;
  const { steps, warmUp, medianSeconds, seed } = options;
  // A run starts fewer trials before its end, so its last steps are not measured.
  const iterations = warmUp + steps + staleness + 1;
  const { slots, deadline, trainTime, publishTime } = rules;
  // Enough sandboxes, so that they are no limit.
  const sandboxes = (staleness + 2) * rules.groupsPerStep * rules.groupSize;
  const world = new World(
    { slots, sandboxes, durations: new Durations(seed, 16), medianSeconds, deadline, trainTime, publishTime },
    stage,
  );
  const id = `policy-${policy.name.replaceAll(/[^a-z0-9]+/g, '-')}-${staleness}-${seed}`;
  await runIn(stage, world, sandboxes, id, { ...settingsOf(rules), iterations }, (handle) => handle.result());
  const predicted = measure(rules, new Durations(seed, 16), { steps, warmUp });
  return { policy: policy.name, staleness, measured: await figuresOf(stage, world, id, policy, options), predicted };
}

async function figuresOf(
  { db }: Stage,
  world: World,
  runId: string,
  { rules }: Policy,
  { steps, warmUp, medianSeconds }: PolicyRunOptions,
): Promise<MeasuredFigures> {
  const rows = await db
    .select({ id: trials.id, iteration: trials.batchIteration, outcome: trials.outcome })
    .from(trials)
    .where(eq(trials.runId, runId));
  const trainedIn = new Map(
    rows.flatMap(({ id, iteration, outcome }) =>
      iteration !== null && (outcome === 'scored' || outcome === 'truncated') ? [[id, iteration] as const] : [],
    ),
  );
  const [from, to] = [world.steps[warmUp]?.wall, world.steps[warmUp + steps]?.wall];
  if (from === undefined || to === undefined)
    throw new Error(`the run made ${world.steps.length} steps, ${warmUp + steps} were asked for`);
  const shares: Share[] = QUANTILES.map(() => ({ started: 0, trained: 0 }));
  const staleness: number[] = Array.from({ length: rules.maxStaleness + 1 }, () => 0);
  let [useful, lost] = [0, 0];
  for (const { trialId, version, seconds, duration } of world.attempted) {
    const step = trainedIn.get(trialId);
    const age = (step ?? 0) - version;
    const isTrained = step !== undefined && age <= rules.maxStaleness;
    // A lost trial counts in the last step that could have used it.
    const settled = isTrained ? step : version + rules.maxStaleness;
    if (settled <= warmUp || settled > warmUp + steps) continue;
    const share = shares[bandOf(Math.min(duration, rules.deadline))];
    if (!share) throw new Error('a duration outside of every band');
    share.started += 1;
    if (isTrained) {
      share.trained += 1;
      useful += seconds;
      staleness[age] = (staleness[age] ?? 0) + 1;
    } else lost += seconds;
  }
  const time = to - from;
  const total = staleness.reduce((sum, each) => sum + each, 0);
  return {
    useful: useful / (rules.slots * time),
    lost: lost / (rules.slots * time),
    rate: (total / time) * medianSeconds,
    samplesPerStep: total / steps,
    stepInterval: time / steps / medianSeconds,
    staleness: staleness.map((each) => each / total),
    trainedShare: shares.map((share) => share.trained / share.started),
  };
}

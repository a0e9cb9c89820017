import { readdir } from 'node:fs/promises';
import { beforeAll, describe, expect, test } from 'vitest';
import { useTrlCases, type Said } from '../../tests/support/scenarios/trl-cases.ts';

const trl = useTrlCases();
let results: Said;
beforeAll(async () => {
  results = await trl.run();
}, 420_000);

describe('an error says what happened and what to do', () => {
  test.each([
    ['a prompt that no task matches', 'no task', /^no task in .* matches the prompt 'say one': .*`agent\.prompts\(\)`/],
    ['a folder without tasks', 'no tasks', /has no task: a task is a folder in it with an instruction\.md/],
    ['the prompts of the folder’s own tasks', 'own prompts', /^no error$/],
    [
      'a gateway that is away',
      'away',
      /^the gateway at http:\/\/127\.0\.0\.1:9 did not answer for 0\.2 s .*npx trialgate up/,
    ],
    ['a wrong admin key', 'wrong key', /refuses the key .*set TRIALGATE_ADMIN_KEY/],
    ['a trainer with a vLLM of its own', 'use_vllm', /use_vllm=True.*leave it out/],
    [
      'an agent that raises',
      'raising',
      /^0 of 2 trials of the prompt 'say (one|two)' can be trained, and the quorum is 2: the agent raised KeyError: 'the tool is missing'\. Repair/,
    ],
    [
      'an agent that asks nothing',
      'silent',
      /it has no recorded call: the agent must ask the model by the trial's `base_url`/,
    ],
    ['an agent that gives no reward', 'unrewarded', /the agent gave it no reward/],
    ['a reward that is not a number', 'not finite', /its reward 'reward' is not a finite number/],
    ['an agent that does not end', 'slow', /the agent did not end within 0\.2 s/],
    ['an agent that hangs in a thread', 'hanging', /the agent did not end within 0\.2 s/],
    ['a timeout of the agent’s own', 'own timeout', /the agent raised TimeoutError: no answer of the tool/],
    ['a named reward without a number', 'none in rewards', /the reward {'tests': None} is not a number or a dict/],
    ['a list as a reward', 'list of rewards', /the reward \[1\.0\] is not a number or a dict of numbers/],
    ['an agent whose calls all fail', 'failing calls', /all of its calls failed \(.*\)\. Repair/],
    [
      'a trial that another deployment has carried out',
      'other deployment',
      /^the gateway at http.* has no session try-elsewhere, .*Set TRIALGATE_URL/,
    ],
    [
      'a trial at another temperature than the trainer’s',
      'temperature',
      /was sampled at temperature 0\.5, and the trainer's is 1: set the same/,
    ],
    [
      'a command that fails, with all of its options',
      'failing command',
      /`false try .* --agent oneshot --json --run settings\.yaml` ended with code 1/,
    ],
    ['a trial that the command carried out, and that failed', 'failed trial', /its verifier gave no reward\. Repair/],
    ['a second Trialgate of the environment', 'twice from env', /^no error$/],
    ['AsyncGRPO’s arguments without a token budget', 'no token_budget', /have no token_budget, .*set token_budget=0/],
    ['a worker’s data set without rows', 'worker without rows', /^the data set of the worker has no row/],
    ['sampling that TRL cannot reproduce', 'top_p', /none of its calls can be trained \(sampling_not_reproducible/],
    [
      'an engine with other weights than the trainer’s',
      'other weights',
      /with the weights 'another-run@1', and the trainer's are 'trl-\w+@1': .*engines of its own/,
    ],
    ['a trainer that sends no weights', 'frozen', /the trainer sent no weights: all of its parameters are frozen/],
    [
      'groups in a row without a quorum, in the worker',
      'worker without quorum',
      /^2 groups in a row ended without a quorum\. 0 of 2 trials/,
    ],
    [
      'a worker whose trainer does not use our weights',
      'worker without weights',
      /pass `weight_transfer=trialgate\.weights`/,
    ],
  ])('%s', (_, name, sentence) => {
    expect(results[name]).toMatch(sentence);
  });
});

test('an error that ends the training comes when the other trials have ended', () => {
  expect(results['others end']).toEqual({ error: 'the end', ended: 3 });
});

test('trials that an engine has sampled with new weights before all engines have them are trained', () => {
  expect(results['early']).toEqual({ version_meanwhile: 1 });
});

test('weights are sent while an asynchronous agent blocks its event loop', () => {
  expect(results['blocking']).toBe(true);
});

test('no engine stays paused when it could not be paused, and when training ends during a pause', () => {
  expect(results['pause fails']).toEqual({ error: expect.stringContaining('/pause fails'), paused: false });
  expect(results['interrupted']).toEqual({ before: true, after: false });
});

test('weights are readable for the engines in a folder of the program’s choice, and are removed by close and at the exit', async () => {
  expect(results['own folder']).toEqual({ modes: ['0o755'], after: 0 });
  expect((await readdir(trl.temporary)).filter((file) => file.startsWith('trl-'))).toEqual([]);
});

test('GRPOTrainer gets one sample of a trial with branches', () => {
  expect(results['branches']).toEqual([5, 5, 5, 5]);
});

test('an engine that cannot load a version goes back to the one before and answers again', () => {
  expect(results['reload fails']).toEqual({
    error: expect.stringMatching(/^engine .* cannot get the trainer's weights: .*out of memory.*went back to NAME@1/),
    after: expect.objectContaining({ loaded: '1', paused: false }),
    weight_version: 'NAME@1',
    version: 1,
  });
});

test('an engine that says it has loaded and computes the same as before is found', () => {
  expect(results['reload does nothing']).toMatchObject({
    error: expect.stringMatching(/computes the same as before, and the trainer's weights have changed/),
    after: { paused: false },
    version: 1,
  });
});

test('an engine that a run has is not given a trainer’s weights', async () => {
  await trl.gateway.givePool('first', 'first@1');
  const asked = trl.gateway.engine.asked.length;
  const again = await trl.run('raising');
  expect(again['raising']).toMatch(/^engine .* belongs to the run first, whose weights would be lost: wait/);
  // The gateway itself goes on to look after it.
  expect(trl.gateway.engine.asked.slice(asked).filter((each) => each.startsWith('POST'))).toEqual([]);
});

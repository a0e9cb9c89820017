import { expect, test } from 'vitest';
import { agentEntry } from '../../core/run-config/agent-file.ts';
import { agentName } from './agent-name.ts';

test('agents without a name of their own are told apart by their labels, and a name of their own stays', async () => {
  const agents = [{ command: ['a'] }, { command: ['b'] }, { name: 'crew', command: ['c'] }].map((each) =>
    agentEntry.parse(each),
  );
  const names = ['inline:1', 'inline:2', 'inline:crew'].map((label) => agentName(agents, label));
  expect(await Promise.all(names)).toEqual(['inline:1', 'inline:2', 'crew']);
});

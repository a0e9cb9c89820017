import { expect, test } from 'vitest';
import { sampledOf } from './tokens.ts';

test.each([2 ** 31, -1, 1.5, '7', null])(
  'the ids of a reply are recorded as missing when the record cannot hold one of them: %j',
  (id) => {
    expect(sampledOf({ token_ids: [7, id] }).completion).toBeNull();
  },
);

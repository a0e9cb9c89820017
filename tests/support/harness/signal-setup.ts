import { afterEach, beforeEach } from 'vitest';
import { currentTest } from './current-test.ts';

beforeEach(({ signal }) => void (currentTest.signal = signal));
afterEach(() => void (currentTest.signal = undefined));

import type { Discovery } from './discovery.ts';
import { file } from './file.ts';
import { kubernetes } from './kubernetes.ts';
import { list } from './list.ts';

export const DISCOVERIES: readonly Discovery[] = [list, file, kubernetes];

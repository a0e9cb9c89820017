import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { folderElsewhere, postgresHome } from './postgres-home.ts';

test.runIf(process.getuid?.() === 0)(
  'when a deployment’s folder is closed to others, its PostgreSQL data moves once to where PostgreSQL’s user reaches it (root only)',
  () => {
    const home = mkdtempSync(join(tmpdir(), 'trialgate-postgres-'));
    onTestFinished(() =>
      [home, folderElsewhere(home)].forEach((folder) => rmSync(folder, { recursive: true, force: true })),
    );
    chmodSync(home, 0o755);
    const before = postgresHome(home).data;
    expect(before).toBe(join(home, 'postgres'));
    writeFileSync(join(before, 'PG_VERSION'), '18');
    chmodSync(home, 0o700);
    for (let start = 0; start < 2; start += 1) {
      const { data } = postgresHome(home);
      expect(data).toBe(join(folderElsewhere(home), 'data'));
      expect(readFileSync(join(data, 'PG_VERSION'), 'utf8')).toBe('18');
      expect(existsSync(before)).toBe(false);
    }
  },
);

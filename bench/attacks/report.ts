import { table } from '../../cli/show/table.ts';
import { provenance } from '../deployment.ts';

/** `critical`: controls the run, its reward or its machine. `high`: stops or slows other trials. `medium`, `low`: makes the attacker's own result wrong or unclear. */
export type Severity = 'critical' | 'high' | 'medium' | 'low';

/** One kind of attack. `tried` counts the tries, and `held` counts those that had no effect beyond the attacker's own trial. */
export type Attack = { id: string; severity: Severity; attack: string; tried: number; held: number; note?: string };

/** Prints the attacks and their results, with the command, the machine and the commit. Returns 1 if an attack succeeded. */
export function reportAttacks(attacks: readonly Attack[]): number {
  const rows = attacks.map(({ id, severity, attack, tried, held, note }) => [
    id,
    severity,
    attack,
    `${tried}`,
    `${held}`,
    note ?? '',
  ]);
  const total = (key: 'tried' | 'held'): number => attacks.reduce((sum, each) => sum + each[key], 0);
  console.log(JSON.stringify(provenance(), null, 2));
  console.log(`\n${table(['', 'severity', 'attack', 'tried', 'held', 'note'], rows)}`);
  const open = attacks.filter(({ tried, held }) => held < tried);
  const count = (severity: Severity): number => open.filter((each) => each.severity === severity).length;
  console.log(
    `\n${total('tried')} tried, ${total('held')} held; open: ${count('critical')} critical, ${count('high')} high, ${count('medium')} medium, ${count('low')} low`,
  );
  return open.length > 0 ? 1 : 0;
}

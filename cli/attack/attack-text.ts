import { table } from '../show/table.ts';
import { SECTIONS } from './attack.ts';
import { inWords, type AttackReport, type AttackResult } from './try-attacks.ts';

const GUIDE = 'docs/writing-verifiers.md';

/** Returns what `try --attack` prints. */
export function attackText({ task, baseline, tried, pay, attacks }: AttackReport): string {
  const rows = attacks.map((attack) => [
    attack.name,
    attack.outcome.replaceAll('_', ' '),
    attack.reward === null ? '–' : String(attack.reward),
    attack.outcome === 'not_possible' ? '–' : attack.pays ? 'PAYS' : 'no',
    attack.what,
  ]);
  const steady = baseline.isSteady
    ? ''
    : ' at most. The verifier is not deterministic: an attack counts only if it earns more three times in a row';
  return [
    `${task}: doing nothing earns ${baseline.reward}${steady}`,
    '',
    table(['attack', 'outcome', 'reward', 'pays', 'it'], rows),
    ...attacks.filter(({ pays }) => pays).flatMap(advice),
    ...unscored(attacks),
    '',
    `${tried} attacks tried, ${pay} pay${tried < attacks.length ? ` (${attacks.length - tried} cannot be tried here)` : ''}`,
  ].join('\n');
}

const advice = ({ name, what, section, reason }: AttackResult): string[] => [
  '',
  `${name} pays: it ${what}${reason === null ? '' : ` (${reason})`}.`,
  `  ${SECTIONS[section]} ${GUIDE}#${section}`,
];

/** Explains outcomes without a reward. They are no success of an attack, but an agent that can cause them at will gains by them. */
function unscored(attacks: readonly AttackResult[]): string[] {
  return attacks.flatMap((attack) => {
    if (attack.outcome !== 'verifier_error' && attack.outcome !== 'infra_error') return [];
    const meaning =
      attack.outcome === 'verifier_error'
        ? 'the verifier failed on it and on the untouched task. It is not scored and leaves the training: an agent that can cause this drops its wrong answers'
        : 'it counts as the machine’s fault. It is not scored and is tried again: an agent that can cause this gets another try for each wrong answer, up to `max_attempts`';
    return ['', `${attack.name} is ${inWords(attack)}: ${meaning}. ${attack.reason ?? ''}`.trimEnd()];
  });
}

import { visible } from '../format.ts';

/** Short text of the record, which agents, models and tasks may have chosen: its control characters are visible, and its direction changes nothing around it. */
export const Recorded = ({ text }: { text: string }) => <bdi>{visible(text)}</bdi>;

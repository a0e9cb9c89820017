/** What the toy engine says to call tools. */
export const calling = (...calls: { name: string; arguments: unknown }[]): string => calls.map((call) => `<tool_call>${JSON.stringify(call)}</tool_call>`).join('');

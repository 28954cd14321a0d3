// Drives `billow mcp` with the official client. argv: a JSON document {transport, command, args,
// url, token, elicit, steps}; each step is {list: true} or {tool, arguments}. Prints one JSON
// document with what each step returned.
import { execFileSync } from 'node:child_process';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const plan = JSON.parse(process.argv[2]);
const asked = [];
const client = new Client(
  { name: 'billow-test', version: '1' },
  { capabilities: plan.elicit ? { elicitation: {} } : {} },
);
if (plan.elicit)
  client.setRequestHandler(ElicitRequestSchema, async (request) => {
    asked.push(request.params.message);
    if (plan.elicit.run) execFileSync(plan.elicit.run[0], plan.elicit.run.slice(1));
    return { action: plan.elicit.action, content: {} };
  });
const transport =
  plan.transport === 'http'
    ? new StreamableHTTPClientTransport(new URL(plan.url), {
        requestInit: { headers: { Authorization: `Bearer ${plan.token}` } },
      })
    : new StdioClientTransport({ command: plan.command, args: plan.args, env: process.env });
await client.connect(transport);
const results = [];
for (const step of plan.steps) {
  if (step.list) results.push(await client.listTools());
  else if (step.parallel)
    results.push(
      await Promise.all(
        Array.from({ length: step.parallel }, () =>
          client.callTool({ name: step.tool, arguments: step.arguments }),
        ),
      ),
    );
  else results.push(await client.callTool({ name: step.tool, arguments: step.arguments }));
}
const server = { version: client.getServerVersion(), capabilities: client.getServerCapabilities() };
await client.close();
process.stdout.write(JSON.stringify({ server, asked, results }) + '\n');

// Compares requests of ours with those of Amazon's own SDK, and our signatures with its code.
//   node ec2_parity.mjs < requests.json
// requests.json: [{method, path, headers, body}, …] as a server received them. The SDK sends the same commands to a server
// on loopback; parameters must be equal, and SignatureV4 must compute the same signature for our request.
import http from 'node:http';
import { Sha256 } from '@aws-crypto/sha256-js';
import {
  AttachVolumeCommand,
  CreateVolumeCommand,
  DeleteVolumeCommand,
  DescribeInstancesCommand,
  DescribeVolumesCommand,
  EC2Client,
  RunInstancesCommand,
  TerminateInstancesCommand,
} from '@aws-sdk/client-ec2';
import { SignatureV4 } from '@smithy/signature-v4';

const credentials = { accessKeyId: process.env.KEY, secretAccessKey: process.env.SECRET };
const region = 'us-east-1';

function form(body) {
  return Object.fromEntries(new URLSearchParams(body));
}

function list(p, prefix, read) {
  const out = [];
  for (let n = 1; Object.keys(p).some((k) => k === `${prefix}.${n}` || k.startsWith(`${prefix}.${n}.`)); n++)
    out.push(read(`${prefix}.${n}`));
  return out;
}

function tags(p) {
  return list(p, 'TagSpecification', (spec) => ({
    ResourceType: p[`${spec}.ResourceType`],
    Tags: list(p, `${spec}.Tag`, (tag) => ({ Key: p[`${tag}.Key`], Value: p[`${tag}.Value`] })),
  }));
}

function look(p) {
  return {
    MaxResults: Number(p.MaxResults),
    NextToken: p.NextToken,
    Filters: list(p, 'Filter', (f) => ({ Name: p[`${f}.Name`], Values: list(p, `${f}.Value`, (v) => p[v]) })),
  };
}

// The command of the SDK that means what our form says.
function command(p) {
  switch (p.Action) {
    case 'RunInstances':
      return new RunInstancesCommand({
        MinCount: Number(p.MinCount),
        MaxCount: Number(p.MaxCount),
        ClientToken: p.ClientToken,
        ImageId: p.ImageId,
        InstanceType: p.InstanceType,
        UserData: p.UserData,
        InstanceInitiatedShutdownBehavior: p.InstanceInitiatedShutdownBehavior,
        Placement: { AvailabilityZone: p['Placement.AvailabilityZone'] },
        MetadataOptions: {
          HttpTokens: p['MetadataOptions.HttpTokens'],
          HttpEndpoint: p['MetadataOptions.HttpEndpoint'],
          HttpPutResponseHopLimit: Number(p['MetadataOptions.HttpPutResponseHopLimit']),
        },
        NetworkInterfaces: [
          {
            DeviceIndex: 0,
            SubnetId: p['NetworkInterface.1.SubnetId'],
            Groups: [p['NetworkInterface.1.SecurityGroupId.1']],
            AssociatePublicIpAddress: true,
            DeleteOnTermination: true,
          },
        ],
        BlockDeviceMappings: [
          {
            DeviceName: p['BlockDeviceMapping.1.DeviceName'],
            Ebs: { VolumeSize: 200, VolumeType: 'gp3', DeleteOnTermination: true },
          },
        ],
        InstanceMarketOptions: p['InstanceMarketOptions.MarketType'] && {
          MarketType: 'spot',
          SpotOptions: { SpotInstanceType: 'one-time', InstanceInterruptionBehavior: 'terminate' },
        },
        TagSpecifications: tags(p),
      });
    case 'CreateVolume':
      return new CreateVolumeCommand({
        AvailabilityZone: p.AvailabilityZone,
        Size: Number(p.Size),
        VolumeType: p.VolumeType,
        ClientToken: p.ClientToken,
        TagSpecifications: tags(p),
      });
    case 'AttachVolume':
      return new AttachVolumeCommand({ VolumeId: p.VolumeId, InstanceId: p.InstanceId, Device: p.Device });
    case 'DeleteVolume':
      return new DeleteVolumeCommand({ VolumeId: p.VolumeId });
    case 'DescribeVolumes':
      return new DescribeVolumesCommand(look(p));
    case 'DescribeInstances':
      return new DescribeInstancesCommand(look(p));
    case 'TerminateInstances':
      return new TerminateInstancesCommand({ InstanceIds: list(p, 'InstanceId', (i) => p[i]) });
    default:
      return null;
  }
}

async function recorded(one) {
  let seen;
  const server = http.createServer((request, response) => {
    const chunks = [];
    request.on('data', (c) => chunks.push(c));
    request.on('end', () => {
      seen = { method: request.method, path: request.url, headers: request.headers, body: Buffer.concat(chunks).toString() };
      response.end('<R/>');
    });
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const client = new EC2Client({ endpoint: `http://127.0.0.1:${server.address().port}`, region, credentials, maxAttempts: 1 });
  await client.send(one).catch(() => {});
  server.close();
  return seen;
}

async function check_signature(ours) {
  const headers = Object.fromEntries(Object.entries(ours.headers).map(([k, v]) => [k.toLowerCase(), v]));
  const said = /Credential=([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]+)/.exec(headers.authorization);
  const [, , scope_region, service] = said[1].split('/');
  const signed = Object.fromEntries(said[2].split(';').map((name) => [name, headers[name]]));
  const stamp = headers['x-amz-date'];
  const date = new Date(stamp.replace(/^(....)(..)(..)T(..)(..)(..)Z$/, '$1-$2-$3T$4:$5:$6Z'));
  delete signed['x-amz-date'];
  delete signed['x-amz-content-sha256'];
  const signer = new SignatureV4({ credentials, region: scope_region, service, sha256: Sha256 });
  const again = await signer.sign(
    { method: ours.method, protocol: 'http:', hostname: 'x', path: ours.path, query: {}, headers: signed, body: ours.body },
    { signingDate: date });
  const theirs = /Signature=([0-9a-f]+)/.exec(again.headers.authorization)[1];
  if (theirs !== said[3]) throw new Error(`the signature of ${form(ours.body).Action} is wrong`);
}

let text = '';
for await (const chunk of process.stdin) text += chunk;
const checked = {};
for (const ours of JSON.parse(text)) {
  const p = form(ours.body);
  const one = command(p);
  if (!one) continue;
  await check_signature(ours);
  const theirs = await recorded(one);
  const wanted = form(theirs.body);
  const names = new Set([...Object.keys(p), ...Object.keys(wanted)]);
  for (const name of names)
    if (p[name] !== wanted[name])
      throw new Error(`${p.Action} ${name}: ours ${p[name]}, the SDK's ${wanted[name]}`);
  if (ours.method !== theirs.method || ours.path !== theirs.path)
    throw new Error(`${ours.method} ${ours.path} instead of ${theirs.method} ${theirs.path}`);
  checked[p.Action] = (checked[p.Action] ?? 0) + 1;
}
console.log(JSON.stringify(checked));

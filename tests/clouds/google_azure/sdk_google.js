// Google's own clients send what our pool sends, in their own terms. Parameters come as JSON on
// standard input; the server on loopback records both.
'use strict';
const fs = require('fs');
const path = require('path');
const jws = require('jws');
const compute = require('@google-cloud/compute').v1;
const {OAuth2Client} = require('google-auth-library');

const p = JSON.parse(fs.readFileSync(0, 'utf8'));
const authClient = new OAuth2Client();
authClient.setCredentials({access_token: p.token, expiry_date: Date.now() + 3600e3});
const options = {apiEndpoint: '127.0.0.1', port: p.port, protocol: 'http', authClient, fallback: true};

function instance() {
  const labels = {
    'billow-installation': p.installation,
    'billow-pool': p.pool,
    'billow-machine': p.machine,
  };
  return {
    name: p.name,
    description: `billow machine ${p.machine}`,
    machineType: `zones/${p.zone}/machineTypes/${p.type}`,
    labels,
    guestAccelerators: p.accelerator
      ? [{acceleratorType: `zones/${p.zone}/acceleratorTypes/${p.accelerator}`, acceleratorCount: 2}]
      : undefined,
    scheduling: {
      provisioningModel: p.spot ? 'SPOT' : 'STANDARD',
      instanceTerminationAction: 'DELETE',
      automaticRestart: false,
      onHostMaintenance: 'TERMINATE',
      maxRunDuration: {seconds: 7 * 24 * 3600},
    },
    disks: [
      {
        boot: true,
        autoDelete: true,
        initializeParams: {
          sourceImage: p.image,
          diskSizeGb: 200,
          diskType: `zones/${p.zone}/diskTypes/${p.diskType}`,
          labels,
        },
      },
    ],
    networkInterfaces: [
      {network: 'global/networks/default', accessConfigs: [{name: 'External NAT', type: 'ONE_TO_ONE_NAT'}]},
    ],
    metadata: {
      items: [
        {key: 'user-data', value: p.userData},
        {key: 'block-project-ssh-keys', value: 'TRUE'},
      ],
    },
    serviceAccounts: p.serviceAccount
      ? [{email: p.serviceAccount, scopes: ['https://www.googleapis.com/auth/cloud-platform']}]
      : undefined,
    reservationAffinity: p.reservation
      ? {
          consumeReservationType: 'SPECIFIC_RESERVATION',
          key: 'compute.googleapis.com/reservation-name',
          values: [p.reservation],
        }
      : undefined,
  };
}

// The same as a part of a request for several: short names, and nobody's own.
function gangProperties() {
  const one = instance();
  delete one.name;
  one.description = 'billow machine fast-2';
  one.labels = {...one.labels, 'billow-machine': 'fast-2'};
  one.machineType = p.type;
  for (const card of one.guestAccelerators ?? []) card.acceleratorType = p.accelerator;
  one.disks[0].initializeParams.diskType = p.diskType;
  one.disks[0].initializeParams.labels = one.labels;
  one.metadata.items[0].value = p.gang.userData;
  if (p.gang.policyId) one.resourcePolicies = [p.gang.name];
  return one;
}

async function gang(instances, where) {
  const policies = new compute.ResourcePoliciesClient(options);
  const place = {project: p.project, region: p.region};
  await all(
    policies.aggregatedListAsync({
      project: p.project,
      filter: `name eq "billow-${p.installation}-.*"`,
      maxResults: 500,
      returnPartialSuccess: true,
    }),
  );
  if (p.gang.policyId) {
    await policies.insert({
      ...place,
      requestId: p.gang.policyId,
      resourcePolicyResource: {
        name: p.gang.name,
        description: 'billow machine fast-2',
        groupPlacementPolicy: {collocation: 'COLLOCATED', vmCount: 2},
      },
    });
    await policies.get({...place, resourcePolicy: p.gang.name});
  }
  await instances.bulkInsert({
    ...where,
    requestId: p.gang.requestId,
    bulkInsertInstanceResourceResource: {
      count: 2,
      minCount: 2,
      perInstanceProperties: {[`${p.gang.name}-n0`]: {}, [`${p.gang.name}-n1`]: {}},
      instanceProperties: gangProperties(),
    },
  });
  for (const [name, requestId] of Object.entries(p.gang.deletes))
    await instances.delete({...where, instance: name, requestId});
  if (p.gang.policyDelete)
    await policies
      .delete({...place, resourcePolicy: p.gang.name, requestId: p.gang.policyDelete})
      .catch(() => {}); // it is in use
}

async function caches(instances, where) {
  const disks = new compute.DisksClient(options);
  await disks.insert({
    ...where,
    requestId: p.disk.requestId,
    diskResource: {
      name: p.disk.name,
      description: `billow cache ${p.disk.disk}`,
      sizeGb: 100,
      type: `zones/${p.zone}/diskTypes/pd-balanced`,
      labels: {'billow-installation': p.installation, 'billow-cache': p.pool},
    },
  });
  const filter =
    `(labels.billow-installation = "${p.installation}") AND (labels.billow-cache = "${p.pool}")`;
  await all(
    disks.aggregatedListAsync({project: p.project, filter, maxResults: 500, returnPartialSuccess: true}),
  );
  await instances.attachDisk({
    ...where,
    instance: p.disk.instance,
    requestId: p.disk.attachId,
    attachedDiskResource: {
      source: `projects/${p.project}/zones/${p.zone}/disks/${p.disk.name}`,
      deviceName: 'billow-cache',
      mode: 'READ_WRITE',
      autoDelete: false,
    },
  }).catch(() => {}); // its machine is not there
  await disks.delete({...where, disk: p.disk.name, requestId: p.disk.deleteId}).catch(() => {});
}

async function all(pages) {
  for await (const _ of pages) void _;
}

// Our signed statement, read and verified with Google's own library.
function compareAssertions() {
  const {buildPayloadForJwsSign} = require(
    path.join(path.dirname(require.resolve('google-auth-library')), 'gtoken/jwsSign.js'),
  );
  const key = JSON.parse(fs.readFileSync(p.keyFile, 'utf8'));
  const publicKey = require('crypto').createPublicKey(key.private_key);
  const decoded = jws.decode(p.assertion);
  const ours =
    typeof decoded.payload === 'string' ? JSON.parse(decoded.payload) : decoded.payload;
  const theirs = buildPayloadForJwsSign({iss: key.client_email, scope: ours.scope});
  return {
    verified: jws.verify(p.assertion, 'RS256', publicKey),
    header: decoded.header,
    ours,
    theirs: JSON.parse(JSON.stringify(theirs)),
  };
}

async function main() {
  const instances = new compute.InstancesClient(options);
  const where = {project: p.project, zone: p.zone};
  await instances.insert({...where, requestId: p.requestId, instanceResource: instance()});
  await instances.get({...where, instance: p.name});
  const filter =
    `(labels.billow-installation = "${p.installation}") AND (labels.billow-pool = "${p.pool}")`;
  await all(
    instances.aggregatedListAsync({project: p.project, filter, maxResults: 500, returnPartialSuccess: true}),
  );
  await caches(instances, where);
  await instances.delete({...where, instance: p.name, requestId: p.deleteId});
  await gang(instances, where);
  await new compute.ZoneOperationsClient(options).get({...where, operation: p.operation});
  await all(
    new compute.MachineTypesClient(options).aggregatedListAsync({
      project: p.project,
      filter: 'name eq "(a2|a3|a4|a4x|g2|g4)-.*"',
      maxResults: 500,
      returnPartialSuccess: true,
    }),
  );
  await new compute.ProjectsClient(options).get({project: p.project});
  await new compute.RegionsClient(options).get({project: p.project, region: p.region});
  const user = new OAuth2Client({
    clientId: 'c',
    clientSecret: 's',
    endpoints: {oauth2TokenUrl: `${p.url}/token`, tokenInfoUrl: `${p.url}/tokeninfo`},
  });
  user.setCredentials({refresh_token: 'r/1'});
  await user.refreshAccessToken();
  await user.getTokenInfo(p.token);
  process.stdout.write(JSON.stringify(compareAssertions()));
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);

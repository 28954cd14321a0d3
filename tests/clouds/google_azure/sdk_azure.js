// Azure's own clients send what our pool sends, in their own terms. Parameters come as JSON on
// standard input; the server on loopback records both.
'use strict';
const fs = require('fs');
const jwt = require('jsonwebtoken');
const {ClientCertificateCredential, ClientSecretCredential} = require('@azure/identity');
const {ComputeManagementClient} = require('@azure/arm-compute');
const {NetworkManagementClient} = require('@azure/arm-network');
const {ResourceManagementClient} = require('@azure/arm-resources');

const p = JSON.parse(fs.readFileSync(0, 'utf8'));
const login = {authorityHost: p.url, disableInstanceDiscovery: true};
const credential = {getToken: async () => ({token: p.token, expiresOnTimestamp: Date.now() + 3600e3})};
const options = {endpoint: p.url, retryOptions: {maxRetries: 0}};
const group = `/subscriptions/${p.subscription}/resourceGroups/${p.group}`;
const security = `${group}/providers/Microsoft.Network/networkSecurityGroups/billow-${p.region}`;
const subnet = `${group}/providers/Microsoft.Network/virtualNetworks/billow-${p.region}/subnets/machines`;
const tags = {
  'billow-installation': p.installation,
  'billow-pool': p.pool,
  'billow-machine': p.machine,
};

function machine() {
  return {
    location: p.region,
    tags,
    zones: p.zone ? [p.zone] : undefined,
    identity: p.identity
      ? {type: 'UserAssigned', userAssignedIdentities: {[p.identity]: {}}}
      : undefined,
    hardwareProfile: {vmSize: p.size},
    ...(p.spot ? {priority: 'Spot', evictionPolicy: 'Delete', billingProfile: {maxPrice: -1}} : {}),
    storageProfile: {
      imageReference: {publisher: 'microsoft-dsvm', offer: 'ubuntu-hpc', sku: '2204', version: 'latest'},
      osDisk: {
        name: `${p.name}-disk`,
        createOption: 'FromImage',
        deleteOption: 'Delete',
        diskSizeGB: 256,
        managedDisk: {storageAccountType: 'Premium_LRS'},
      },
    },
    osProfile: {
      computerName: p.name,
      adminUsername: 'billow',
      customData: p.customData,
      linuxConfiguration: {
        disablePasswordAuthentication: true,
        ssh: {publicKeys: [{path: '/home/billow/.ssh/authorized_keys', keyData: p.sshKey}]},
      },
    },
    networkProfile: {
      networkApiVersion: '2022-11-01',
      networkInterfaceConfigurations: [
        {
          name: `${p.name}-card`,
          tags,
          primary: true,
          deleteOption: 'Delete',
          networkSecurityGroup: {id: security},
          ipConfigurations: [
            {
              name: 'address',
              primary: true,
              subnet: {id: subnet},
              publicIPAddressConfiguration: {
                name: `${p.name}-address`,
                sku: {name: 'Standard'},
                tags,
                deleteOption: 'Delete',
                publicIPAllocationMethod: 'Static',
              },
            },
          ],
        },
      ],
    },
  };
}

function scaleSet() {
  const one = machine();
  const name = p.gang.name;
  const card = one.networkProfile.networkInterfaceConfigurations[0];
  const address = card.ipConfigurations[0];
  return {
    location: one.location,
    tags: {...tags, 'billow-machine': 'fast-2'},
    zones: one.zones,
    identity: one.identity,
    sku: {name: p.size, tier: 'Standard', capacity: 2},
    orchestrationMode: 'Uniform',
    singlePlacementGroup: true,
    platformFaultDomainCount: 1,
    overprovision: false,
    upgradePolicy: {mode: 'Manual'},
    virtualMachineProfile: {
      priority: one.priority,
      evictionPolicy: one.evictionPolicy,
      billingProfile: one.billingProfile,
      storageProfile: {
        imageReference: one.storageProfile.imageReference,
        osDisk: {
          createOption: 'FromImage',
          diskSizeGB: 256,
          managedDisk: {storageAccountType: 'Premium_LRS'},
        },
      },
      osProfile: {
        computerNamePrefix: name,
        adminUsername: 'billow',
        customData: p.gang.customData,
        linuxConfiguration: one.osProfile.linuxConfiguration,
      },
      networkProfile: {
        networkInterfaceConfigurations: [
          {
            name: `${name}-card`,
            primary: true,
            networkSecurityGroup: card.networkSecurityGroup,
            ipConfigurations: [
              {
                name: 'address',
                primary: true,
                subnet: address.subnet,
                publicIPAddressConfiguration: {name: `${name}-address`, sku: {name: 'Standard'}},
              },
            ],
          },
        ],
      },
    },
  };
}

async function all(pages) {
  for await (const _ of pages) void _;
}

async function shared() {
  const owner = {'billow-installation': p.installation};
  const groups = new ResourceManagementClient(credential, p.subscription, options).resourceGroups;
  await groups.get(p.group);
  await groups.createOrUpdate(p.group, {location: p.region, tags: owner});
  const network = new NetworkManagementClient(credential, p.subscription, options);
  const name = `billow-${p.region}`;
  await network.networkSecurityGroups.beginCreateOrUpdate(p.group, name, {
    location: p.region,
    tags: owner,
    securityRules: [],
  });
  await network.virtualNetworks.beginCreateOrUpdate(p.group, name, {
    location: p.region,
    tags: owner,
    addressSpace: {addressPrefixes: ['10.90.0.0/16']},
    subnets: [{name: 'machines', addressPrefix: '10.90.0.0/16', networkSecurityGroup: {id: security}}],
  });
  await network.virtualNetworks.get(p.group, name);
}

// Our signed statement, read and verified with the library that Azure's client signs with.
function readAssertion(assertion) {
  const certificate = fs.readFileSync(p.certificate, 'utf8');
  const claims = jwt.verify(assertion, certificate, {algorithms: ['PS256']});
  return {header: jwt.decode(assertion, {complete: true}).header, claims};
}

async function main() {
  const scope = `${p.url}/.default`;
  await new ClientSecretCredential(p.tenant, p.client, p.secret, login).getToken(scope);
  await new ClientCertificateCredential(p.tenant, p.client, p.certificate, login).getToken(scope);
  await shared();
  const compute = new ComputeManagementClient(credential, p.subscription, options);
  const vms = compute.virtualMachines;
  await vms.createOrUpdate(p.group, p.name, machine(), {ifNoneMatch: '*', updateIntervalInMs: 10});
  await all(vms.list(p.group));
  await vms.get(p.group, p.name);
  await vms.get(p.group, p.name, {expand: 'instanceView'});
  await vms.delete(p.group, p.name, {forceDeletion: true, updateIntervalInMs: 10});
  const sets = compute.virtualMachineScaleSets;
  const quick = {updateIntervalInMs: 10};
  await sets.createOrUpdate(p.group, p.gang.name, scaleSet(), {ifNoneMatch: '*', ...quick});
  await all(sets.list(p.group));
  await sets.get(p.group, p.gang.name);
  await sets.delete(p.group, p.gang.name, {forceDeletion: true, ...quick});
  await compute.disks.createOrUpdate(
    p.group,
    p.disk.name,
    {
      location: p.region,
      tags: {'billow-installation': p.installation, 'billow-pool': p.pool, 'billow-cache': p.disk.disk},
      zones: p.zone ? [p.zone] : undefined,
      sku: {name: 'StandardSSD_LRS'},
      creationData: {createOption: 'Empty'},
      diskSizeGB: 100,
    },
    quick,
  );
  await all(compute.disks.listByResourceGroup(p.group));
  const diskId = `${group}/providers/Microsoft.Compute/disks/${p.disk.name}`;
  const attach = {dataDisksToAttach: [{diskId, lun: 10, caching: 'ReadOnly', deleteOption: 'Detach'}]};
  // The machine is not there any more.
  await vms.attachDetachDataDisks(p.group, p.disk.machine, attach, quick).catch(() => {});
  await compute.disks.delete(p.group, p.disk.name, quick);
  const usages = compute.usage ?? compute.usageOperations;
  await all(usages.list(p.region));
  await all(compute.resourceSkus.list({filter: `location eq '${p.region}'`}));
  process.stdout.write(JSON.stringify(readAssertion(p.assertion)));
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);

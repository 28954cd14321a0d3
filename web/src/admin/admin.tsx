// Projects with their members and quotas, users, policies, and tokens (shown once).
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call, get, has, post, problem } from '../data/api';
import { exactly, gpus, moment, plural } from '../data/format';
import { may, projectsWhere } from '../data/rights';
import { confirm, rows } from '../parts/ui';
import { notify, status } from '../data/store';

interface Token {
  id: number;
  name: string;
  user: string;
  scope: string;
  created_at: string;
  expires_at: string | null;
}
interface Project {
  name: string;
  weight: number;
  members: Record<string, string>;
  guaranteed_milli?: number;
  limit_milli?: number | null;
  user_limit_milli?: number | null;
  may_borrow?: boolean;
  running_milli?: number;
  policy?: string;
}
interface User {
  name: string;
  unix_name?: string; // of others: admins only
  role?: string;
  state?: string;
}
interface IdleRules {
  default: { enabled: boolean; warn_s: number; suspend_s: number; stop_s: number };
  floor: { suspend_s: number; stop_s: number };
}

const policies: Record<string, string> = {
  fair: 'fair share',
  shortest: 'shortest first',
  fifo: 'first in, first out',
};

const quota = (p: Project) =>
  [
    p.guaranteed_milli ? `${gpus(p.guaranteed_milli)} guaranteed` : '',
    p.limit_milli != null ? `at most ${gpus(p.limit_milli)}` : '',
    p.user_limit_milli != null ? `${gpus(p.user_limit_milli)} per user` : '',
    p.guaranteed_milli && p.may_borrow === false ? 'no borrowing' : '',
    p.running_milli ? `${gpus(p.running_milli)} in use` : '',
  ]
    .filter(Boolean)
    .join(', ') || 'none';

const inPath = (form: FormData, field: string) => encodeURIComponent(String(form.get(field)));

// Only the fields that were filled in: the others keep their values.
function quotaOf(form: FormData): Record<string, number | string> {
  const out: Record<string, number | string> = {};
  for (const [field, key] of [
    ['guaranteed', 'guaranteed_milli'],
    ['limit', 'limit_milli'],
    ['user', 'user_limit_milli'],
  ] as const) {
    const text = String(form.get(field) ?? '');
    if (text) out[key] = Math.round(Number(text) * 1000);
  }
  if (form.get('policy')) out.policy = String(form.get('policy'));
  return out;
}

// A browser's session is a token too; it is listed apart from the tokens that people created.
const session = 'dashboard';
function Tokens({
  list,
  label,
  revoke,
}: {
  list: Token[];
  label: string;
  revoke: (t: Token) => void;
}) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table class={rows.value} role="table">
        <thead role="rowgroup">
          <tr role="row">
            <th role="columnheader">Name</th>
            <th role="columnheader">User</th>
            <th role="columnheader">Scope</th>
            <th role="columnheader">Created</th>
            <th role="columnheader">Expires</th>
            <th role="columnheader">
              <span class="sr">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {list.map((t) => (
            <tr role="row">
              <td role="cell" data-name="Name">
                {t.name}
              </td>
              <td role="cell" data-name="User">
                {t.user}
              </td>
              <td role="cell" data-name="Scope">
                {t.scope}
              </td>
              <td role="cell" data-name="Created">
                {moment(t.created_at)}
              </td>
              <td role="cell" data-name="Expires">
                {t.expires_at ? moment(t.expires_at) : 'never'}
              </td>
              <td role="cell">
                <button
                  class="quiet small"
                  onClick={() =>
                    confirm(
                      t.name === session ? 'End this session?' : `Revoke ${t.name}?`,
                      'Programs and browsers that use it lose access immediately.',
                      t.name === session ? 'End session' : 'Revoke',
                      () => revoke(t),
                    )
                  }
                  aria-label={
                    t.name === session
                      ? `End the session created ${moment(t.created_at)}`
                      : `Revoke ${t.name}`
                  }
                >
                  {t.name === session ? 'End' : 'Revoke'}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// Makes the handler of a form: sends it, says what was done, and shows the page's data again.
type Submit = (
  run: (form: FormData) => Promise<unknown>,
  said: (form: FormData) => string,
) => (event: Event) => void;

function NewProject({ submit }: { submit: Submit }) {
  return (
    <form
      class="inline"
      onSubmit={submit(
        (f) => post('/v1/projects', { name: f.get('name'), weight: Number(f.get('weight')) }),
        (f) => `Project ${f.get('name')} was created`,
      )}
    >
      <label>
        New project <input name="name" required pattern="[a-z0-9._\-]+" />
      </label>
      <label>
        Weight <input name="weight" type="number" min="1" value="100" required />
      </label>
      <button>Add</button>
    </form>
  );
}

function MemberForm({ users, submit }: { users: User[]; submit: Submit }) {
  return (
    <form
      class="inline"
      onSubmit={submit(
        (f) =>
          call('PUT', `/v1/projects/${inPath(f, 'project')}/members/${inPath(f, 'user')}`, {
            role: f.get('role'),
          }),
        (f) => `${f.get('user')} is ${f.get('role')} of ${f.get('project')}`,
      )}
    >
      <label>
        Project{' '}
        <select name="project">
          {projectsWhere('members.change').map((p) => (
            <option>{p}</option>
          ))}
        </select>
      </label>
      <label>
        User{' '}
        <select name="user">
          {users.map((u) => (
            <option>{u.name}</option>
          ))}
        </select>
      </label>
      <label>
        Role{' '}
        <select name="role">
          <option>member</option>
          <option>viewer</option>
          <option>admin</option>
        </select>
      </label>
      <button>Set</button>
    </form>
  );
}

function Projects({
  projects,
  users,
  submit,
}: {
  projects: Project[];
  users: User[];
  submit: Submit;
}) {
  return (
    <>
      <h2>Projects</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Projects">
        <table>
          <thead>
            <tr>
              <th>Name</th>
              <th>Weight</th>
              <th>Quota</th>
              <th>Members</th>
            </tr>
          </thead>
          <tbody>
            {projects.map((p) => (
              <tr>
                <td>
                  <a href={`#/jobs?show=all&project=${encodeURIComponent(p.name)}`}>{p.name}</a>
                </td>
                <td>{p.weight}</td>
                <td>{quota(p)}</td>
                <td class="wrap">
                  {Object.entries(p.members)
                    .map(([u, r]) => `${u} (${r})`)
                    .join(', ') || '–'}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {(may('projects.change') || projectsWhere('members.change').length > 0) && (
        <div class="two forms">
          {may('projects.change') && <NewProject submit={submit} />}
          {projectsWhere('members.change').length > 0 && (
            <MemberForm users={users} submit={submit} />
          )}
        </div>
      )}
    </>
  );
}

function NewUser({ submit }: { submit: Submit }) {
  return (
    <form
      class="inline"
      aria-label="New user"
      onSubmit={submit(
        (f) =>
          post('/v1/users', {
            name: f.get('name'),
            role: f.get('role'),
            ...(f.get('unix') ? { unix_name: f.get('unix') } : {}),
          }),
        (f) => `User ${f.get('name')} was added`,
      )}
    >
      <label>
        New user <input name="name" required autocomplete="off" />
      </label>
      <label>
        Unix account <input name="unix" placeholder="the same name" autocomplete="off" />
      </label>
      <label>
        Role{' '}
        <select name="role">
          <option>member</option>
          <option>admin</option>
          <option>viewer</option>
        </select>
      </label>
      <button>Add the user</button>
    </form>
  );
}

function Users({ users, submit }: { users: User[]; submit: Submit }) {
  return (
    <>
      <h2>Users</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Users">
        <table>
          <thead>
            <tr>
              <th>Name</th>
              <th>Unix user</th>
              <th>Role</th>
              <th>State</th>
            </tr>
          </thead>
          <tbody>
            {users.map((u) => (
              <tr>
                <td>{u.name}</td>
                <td>{u.unix_name ?? ''}</td>
                <td>{u.role ?? ''}</td>
                <td>{u.state ?? ''}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {may('users.change') && <NewUser submit={submit} />}
    </>
  );
}

function QuotaForm({ projects, submit }: { projects: Project[]; submit: Submit }) {
  return (
    <form
      class="inline"
      aria-label="Quota"
      onSubmit={submit(
        (f) => call('PUT', `/v1/projects/${inPath(f, 'project')}`, quotaOf(f)),
        (f) => `The quota of ${f.get('project')} was set`,
      )}
    >
      <label>
        Project{' '}
        <select name="project">
          {projects.map((p) => (
            <option>{p.name}</option>
          ))}
        </select>
      </label>
      <label>
        Guaranteed GPUs{' '}
        <input name="guaranteed" type="number" min="0" step="any" placeholder="same" />
      </label>
      <label>
        Limit <input name="limit" type="number" min="0" step="any" placeholder="same" />
      </label>
      <label>
        Limit per user <input name="user" type="number" min="0" step="any" placeholder="same" />
      </label>
      <label>
        Order of jobs{' '}
        <select name="policy">
          <option value="">unchanged</option>
          <option value="fair">fair share</option>
          <option value="shortest">shortest first</option>
          <option value="fifo">first in, first out</option>
        </select>
      </label>
      <button>Set the quota</button>
    </form>
  );
}

function IdleForm({ idle, submit }: { idle: IdleRules; submit: Submit }) {
  return (
    <form
      class="inline"
      aria-label="Idle GPUs"
      onSubmit={submit(
        (f) =>
          call('PUT', '/v1/idle', {
            enabled: f.get('enabled') === 'on',
            warn_s: 60 * Number(f.get('warn')),
            suspend_s: 60 * Number(f.get('suspend')),
            stop_s: 60 * Number(f.get('stop')),
          }),
        () => 'The idle rule was set',
      )}
    >
      <label>
        Warn after (min){' '}
        <input
          name="warn"
          required
          type="number"
          min="0"
          step="any"
          value={idle.default.warn_s / 60}
        />
      </label>
      <label>
        Suspend after (min){' '}
        <input
          name="suspend"
          required
          type="number"
          min="0"
          step="any"
          value={idle.default.suspend_s / 60}
        />
      </label>
      <label>
        Stop after (min){' '}
        <input
          name="stop"
          required
          type="number"
          min="0"
          step="any"
          value={idle.default.stop_s / 60}
        />
      </label>
      <label class="check">
        <input name="enabled" type="checkbox" checked={idle.default.enabled} /> enabled
      </label>
      <button>Set the idle rule</button>
    </form>
  );
}

function Policies({
  projects,
  idle,
  submit,
}: {
  projects: Project[];
  idle: IdleRules | null;
  submit: Submit;
}) {
  return (
    <>
      <h2>Policies</h2>
      <dl class="facts">
        <dt>Order of jobs</dt>
        <dd>
          between projects by weight; within a project:{' '}
          {projects.map((p) => `${p.name} ${policies[p.policy ?? 'fair'] ?? p.policy}`).join(', ')}
        </dd>
        {idle && (
          <>
            <dt>Idle GPUs</dt>
            <dd>
              {idle.default.enabled
                ? `warned after ${exactly(idle.default.warn_s)}, ` +
                  `suspended after ${exactly(idle.default.suspend_s)}, ` +
                  `stopped after ${exactly(idle.default.stop_s)}`
                : 'no action'}
            </dd>
          </>
        )}
      </dl>
      {may('projects.change') && (
        <div class="two forms">
          <QuotaForm projects={projects} submit={submit} />
          {idle && <IdleForm idle={idle} submit={submit} />}
        </div>
      )}
    </>
  );
}

function NewToken({ create }: { create: (form: FormData) => void }) {
  return (
    <form
      class="inline"
      onSubmit={(e) => {
        e.preventDefault();
        create(new FormData(e.target as HTMLFormElement));
      }}
    >
      <label>
        Name <input name="name" required />
      </label>
      <label>
        Scope{' '}
        <select name="scope">
          <option value="full">full: everything I may do</option>
          <option value="read">read only</option>
        </select>
      </label>
      <button>Create token</button>
      <span class="quiet small">
        It ends with this session, after 12 hours at the latest. For longer ones: billow token
        create
      </span>
    </form>
  );
}

export function Admin() {
  const tokens = useSignal<Token[]>([]);
  const projects = useSignal<Project[]>([]);
  const users = useSignal<User[]>([]);
  const idle = useSignal<IdleRules | null>(null);
  const secret = useSignal('');
  const error = useSignal('');
  const load = async () => {
    try {
      [tokens.value, projects.value, users.value] = await Promise.all([
        get<{ tokens: Token[] }>('/v1/tokens').then((d) => d.tokens),
        get<{ projects: Project[] }>('/v1/projects').then((d) => d.projects),
        get<{ users: User[] }>('/v1/users').then((d) => d.users),
      ]);
      if (await has('/v1/idle')) idle.value = await get<IdleRules>('/v1/idle');
    } catch (e) {
      error.value = problem(e);
    }
  };
  useEffect(() => {
    void load();
  }, []);
  const attempt = async (run: () => Promise<unknown>, said: string) => {
    try {
      await run();
      error.value = '';
      notify(said);
      await load();
    } catch (e) {
      error.value = problem(e);
    }
  };
  const submit: Submit = (run, said) => (event) => {
    event.preventDefault();
    const target = event.target as HTMLFormElement,
      form = new FormData(target);
    void attempt(() => run(form), said(form)).then(() => {
      if (!error.value) target.reset();
    });
  };
  const sessions = tokens.value.filter((t) => t.name === session).sort((a, b) => b.id - a.id);
  const s = status.value!;
  return (
    <section>
      <h1>Admin</h1>
      <p class="lead">
        Billow {s.version}, epoch {s.epoch}, started {moment(s.started_at)}, data in{' '}
        <code>{s.data_dir}</code>, store {s.store}. You are {s.you.user} ({s.you.role}).
      </p>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      <Projects projects={projects.value} users={users.value} submit={submit} />
      <Users users={users.value} submit={submit} />
      <Policies projects={projects.value} idle={idle.value} submit={submit} />
      <h2>Tokens</h2>
      <NewToken
        create={(f) => {
          void attempt(async () => {
            secret.value = (
              await post<{ token: string }>('/v1/tokens', {
                name: f.get('name'),
                scope: f.get('scope'),
              })
            ).token;
          }, 'The token was created');
        }}
      />
      {secret.value && (
        <p class="secret" role="status">
          Copy it now, it is not shown again: <code>{secret.value}</code>
        </p>
      )}
      <Tokens
        list={tokens.value.filter((t) => t.name !== session)}
        label="Tokens"
        revoke={(t) => {
          void attempt(() => call('DELETE', `/v1/tokens/${t.id}`), `Token ${t.name} was revoked`);
        }}
      />
      {sessions.length > 0 && (
        <details class="sessions">
          <summary>{plural(sessions.length, 'dashboard session')}</summary>
          <Tokens
            list={sessions}
            label="Dashboard sessions"
            revoke={(t) => {
              void attempt(() => call('DELETE', `/v1/tokens/${t.id}`), 'The session was ended');
            }}
          />
        </details>
      )}
    </section>
  );
}

CREATE SCHEMA billow;
CREATE FUNCTION billow.json_extract(doc text, path text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN position('\u0000' IN doc) > 0 THEN '' ELSE doc::json #>> string_to_array(substr(path, 3), '.') END $$;
CREATE TABLE billow.entries (
    number bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    node_id bigint NOT NULL,
    lease_id bigint NOT NULL,
    job_id bigint NOT NULL,
    project_id bigint NOT NULL,
    user_id bigint NOT NULL,
    from_at bigint NOT NULL,
    to_at bigint NOT NULL,
    amount bigint NOT NULL,
    correction bigint NOT NULL
);
CREATE TABLE billow.events (
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    at bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    payload text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE billow.job_counts (
    state text NOT NULL COLLATE pg_catalog."C",
    project_id bigint NOT NULL,
    jobs bigint NOT NULL
);
CREATE TABLE billow.job_labels (
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    job_id bigint NOT NULL
);
CREATE TABLE billow.jobs (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    user_id bigint NOT NULL,
    project_id bigint NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    submitted_at bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    exit_code bigint,
    array_id bigint NOT NULL,
    array_index bigint NOT NULL,
    nodes text NOT NULL COLLATE pg_catalog."C",
    gpu_type text NOT NULL COLLATE pg_catalog."C",
    gpu_count bigint NOT NULL,
    gpu_milli bigint NOT NULL,
    charge bigint NOT NULL,
    labels text NOT NULL COLLATE pg_catalog."C",
    doc text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE billow.leader (
    id bigint NOT NULL,
    epoch bigint NOT NULL,
    holder text NOT NULL,
    identity text NOT NULL,
    until timestamp with time zone NOT NULL,
    commits bigint NOT NULL,
    CONSTRAINT leader_id_check CHECK ((id = 1))
);
CREATE TABLE billow.leases (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    task_id bigint NOT NULL,
    project_id bigint NOT NULL,
    user_id bigint NOT NULL,
    node_name text NOT NULL COLLATE pg_catalog."C",
    gpu_type text NOT NULL COLLATE pg_catalog."C",
    milli bigint NOT NULL,
    price_class text NOT NULL COLLATE pg_catalog."C",
    from_at bigint NOT NULL,
    to_at bigint NOT NULL,
    open bigint NOT NULL,
    charge bigint NOT NULL,
    cost bigint NOT NULL,
    idle bigint DEFAULT 0 NOT NULL,
    energy_mj bigint DEFAULT 0 NOT NULL,
    gpus bigint DEFAULT 0 NOT NULL,
    card_mem_mib bigint DEFAULT 0 NOT NULL,
    mem_peak_mib bigint DEFAULT 0 NOT NULL,
    sm_peak_pct bigint DEFAULT 0 NOT NULL,
    engine_p95_pct bigint DEFAULT 0 NOT NULL,
    measured bigint DEFAULT 0 NOT NULL,
    egress bigint DEFAULT 0 NOT NULL,
    egress_bytes bigint DEFAULT 0 NOT NULL
);
CREATE TABLE billow.meta (
    key text NOT NULL COLLATE pg_catalog."C",
    value bigint NOT NULL
);
CREATE TABLE billow.node_days (
    day bigint NOT NULL,
    node_name text NOT NULL COLLATE pg_catalog."C",
    pool text NOT NULL COLLATE pg_catalog."C",
    cost bigint NOT NULL,
    provider_id text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE billow.shared (
    name text NOT NULL,
    value text NOT NULL
);
CREATE TABLE billow.snapshot_parts (
    seq bigint NOT NULL,
    part bigint NOT NULL,
    bytes bytea NOT NULL
);
CREATE TABLE billow.snapshots (
    seq bigint NOT NULL,
    sha256 text NOT NULL
);
CREATE TABLE billow.tasks (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    node_id bigint NOT NULL,
    node_name text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    exit_code bigint,
    doc text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE billow.usage_daily (
    day bigint NOT NULL,
    project_id bigint NOT NULL,
    user_id bigint NOT NULL,
    gpu_type text NOT NULL COLLATE pg_catalog."C",
    price_class text NOT NULL COLLATE pg_catalog."C",
    charge bigint NOT NULL,
    cost bigint NOT NULL,
    gpu_milli_ms bigint NOT NULL,
    idle bigint DEFAULT 0 NOT NULL,
    energy_mj bigint DEFAULT 0 NOT NULL,
    egress bigint DEFAULT 0 NOT NULL,
    egress_bytes bigint DEFAULT 0 NOT NULL
);
INSERT INTO billow.events VALUES (1, 1, 1800000007000000000, 'head_started', '{"actor":"user:ana","request":"request-1","event":{"version":"0.1.0","epoch":1}}');
INSERT INTO billow.events VALUES (2, 1, 1800000007000000000, 'user_added', '{"actor":"user:ana","request":"request-1","event":{"user":{"id":1,"name":"ana","unix_name":"ana","role":"admin"}}}');
INSERT INTO billow.events VALUES (3, 1, 1800000007000000000, 'project_added', '{"actor":"user:ana","request":"request-1","event":{"project":{"id":1,"name":"default","members":{"ana":"admin"}}}}');
INSERT INTO billow.events VALUES (4, 1, 1800000007000000000, 'token_created', '{"actor":"user:ana","request":"request-1","event":{"token":{"id":1,"name":"local","hash":"h","user":1,"created_at_ns":1800000007000000000}}}');
INSERT INTO billow.events VALUES (5, 1, 1800000007000000000, 'token_created', '{"actor":"user:ana","request":"request-1","event":{"token":{"id":2,"name":"local-node","hash":"n","user":1,"scope":"node","created_at_ns":1800000007000000000}}}');
INSERT INTO billow.events VALUES (6, 1, 1800000014000000000, 'node_joined', '{"actor":"user:ana","request":"request-1","event":{"node":{"id":1,"offer":{"name":"n1","boot_id":"boot-1","gpus":[{"uuid":"GPU-n1-0","vendor":"nvidia","model":"NVIDIA H100","type":"H100","mem_mib":81559,"nvlink_domain":0},{"index":1,"uuid":"GPU-n1-1","vendor":"nvidia","model":"NVIDIA H100","type":"H100","mem_mib":81559,"nvlink_domain":0}],"cpu_milli":64000,"mem_mib":524288,"labels":{"rack":"r1","zone":"a"}},"joined_at_ns":1800000014000000000}}}');
INSERT INTO billow.events VALUES (7, 1, 1800000014000000000, 'node_price_set', '{"actor":"user:ana","request":"request-1","event":{"node":1,"rate":2000000,"capacity_milli":2000}}');
INSERT INTO billow.events VALUES (8, 1, 1800000021000000000, 'node_joined', '{"actor":"user:ana","request":"request-1","event":{"node":{"id":2,"offer":{"name":"n2","boot_id":"boot-1","gpus":[{"uuid":"GPU-n2-0","vendor":"nvidia","model":"NVIDIA H100","type":"H100","mem_mib":81559,"nvlink_domain":0},{"index":1,"uuid":"GPU-n2-1","vendor":"nvidia","model":"NVIDIA H100","type":"H100","mem_mib":81559,"nvlink_domain":0}],"cpu_milli":64000,"mem_mib":524288,"labels":{"rack":"r1","zone":"a"}},"joined_at_ns":1800000021000000000}}}');
INSERT INTO billow.events VALUES (9, 1, 1800000021000000000, 'node_price_set', '{"actor":"user:ana","request":"request-1","event":{"node":2,"rate":2000000,"capacity_milli":2000}}');
INSERT INTO billow.events VALUES (10, 1, 1800000028000000000, 'node_joined', '{"actor":"user:ana","request":"request-1","event":{"node":{"id":3,"offer":{"name":"n3","boot_id":"boot-1","gpus":[{"uuid":"GPU-n3-0","vendor":"nvidia","model":"NVIDIA H100","type":"H100","mem_mib":81559,"nvlink_domain":0}],"cpu_milli":64000,"mem_mib":524288,"labels":{"bills":"yes","rack":"r1","zone":"a"}},"joined_at_ns":1800000028000000000}}}');
INSERT INTO billow.events VALUES (11, 1, 1800000028000000000, 'node_price_set', '{"actor":"user:ana","request":"request-1","event":{"node":3,"rate":1000000,"capacity_milli":1000}}');
INSERT INTO billow.events VALUES (12, 1, 1800000035000000000, 'webhook_added', '{"actor":"user:ana","request":"request-1","event":{"webhook":{"id":1,"url":"https://example.com/hook","kinds":["job"],"delivered":11}}}');
INSERT INTO billow.events VALUES (13, 1, 1800000042000000000, 'project_added', '{"actor":"user:ana","request":"request-1","event":{"project":{"id":2,"name":"vision"}}}');
INSERT INTO billow.events VALUES (14, 1, 1800000049000000000, 'webhook_delivered', '{"actor":"user:ana","request":"request-1","event":{"webhook":1,"through":13}}');
INSERT INTO billow.events VALUES (15, 1, 1800007256000000000, 'node_released', '{"actor":"user:ana","request":"request-1","event":{"node":3,"reason":"no job for 2h"}}');
INSERT INTO billow.events VALUES (16, 1, 1800007270000000000, 'reservation_made', '{"actor":"user:ana","request":"request-1","event":{"reservation":{"id":1,"name":"short","project":1,"user":1,"from_ns":1800007323000000000,"until_ns":1800008463000000000,"resources":{"gpus":1,"share":{"milli":1000}},"places":[{"node":1,"gpus":[{"share":{"milli":1000,"mem_mib":81559}}],"cpu_milli":28000,"mem_mib":229376}],"rate":600000,"made_at_ns":1800007270000000000}}}');
INSERT INTO billow.events VALUES (17, 1, 1800007404000000000, 'environment_stored', '{"actor":"user:ana","request":"request-1","event":{"digest":"47a2d3ad75162b77c2ac4022fd6f303c","env":{"PATH":"/usr/bin"}}}');
INSERT INTO billow.events VALUES (18, 1, 1800007404000000000, 'jobs_submitted', '{"actor":"user:ana","request":"request-1","event":{"first":1,"spec":{"argv":["python","train.py"],"cwd":"/home/ana","env_digest":"47a2d3ad75162b77c2ac4022fd6f303c","resources":{"gpus":1,"share":{"milli":1000}},"reservation":1},"project":1,"user":1}}');
INSERT INTO billow.events VALUES (19, 1, 1800007404000000000, 'job_placed', '{"actor":"head","event":{"job":1,"tasks":[{"id":1,"job":1,"attempt":1,"node":1,"boot_id":"boot-1","gpus":[{"share":{"milli":1000,"mem_mib":81559}}],"cpu_milli":25,"lease_from_ns":1800007404000000000,"rate":600000,"price_class":"reserved","reservation":1}]}}');
INSERT INTO billow.events VALUES (20, 1, 1800007411000000000, 'task_started', '{"actor":"user:ana","request":"request-1","event":{"task":1,"at_ns":1800007404000000000}}');
INSERT INTO billow.events VALUES (21, 1, 1800009218000000000, 'reservation_ended', '{"actor":"head","event":{"reservation":1,"reason":"its time is over","lease":{"id":2,"node":1,"state":"ended","gpus":[{"share":{"milli":1000,"mem_mib":81559}}],"cpu_milli":28000,"mem_mib":229376,"lease_from_ns":1800007323000000000,"lease_to_ns":1800008463000000000,"rate":600000,"price_class":"reserved","reservation":1},"unused":48600000,"project":1,"user":1,"unused_milli":71}}');
INSERT INTO billow.events VALUES (22, 1, 1800009218000000000, 'task_rerated', '{"actor":"head","event":{"task":1,"lease_to_ns":1800008463000000000,"cost":635400000,"rate":1000000}}');
INSERT INTO billow.events VALUES (23, 1, 1800009218000000000, 'reservation_left', '{"actor":"head","event":{"job":1,"reason":"its reservation 1 is over: since 2027-01-15T10:21:03Z it goes on at the price of on-demand work, $3.60/h"}}');
INSERT INTO billow.events VALUES (24, 1, 1800009225000000000, 'task_ended', '{"actor":"user:ana","request":"request-1","event":{"task":1,"lease_to_ns":1800009218000000000,"cost":755000000}}');
INSERT INTO billow.events VALUES (25, 1, 1800009225000000000, 'job_ended', '{"actor":"user:ana","request":"request-1","event":{"job":1}}');
INSERT INTO billow.events VALUES (26, 1, 1800009232000000000, 'reservation_made', '{"actor":"user:ana","request":"request-1","event":{"reservation":{"id":2,"name":"later","project":1,"user":1,"from_ns":1800045225000000000,"until_ns":1800052425000000000,"resources":{"gpus":1,"share":{"milli":1000}},"places":[{"node":1,"gpus":[{"share":{"milli":1000,"mem_mib":81559}}],"cpu_milli":28000,"mem_mib":229376}],"rate":600000,"made_at_ns":1800009232000000000}}}');
INSERT INTO billow.events VALUES (27, 1, 1800009239000000000, 'node_unreachable', '{"actor":"user:ana","request":"request-1","event":{"node":1}}');
INSERT INTO billow.events VALUES (28, 1, 1800009246000000000, 'node_removed', '{"actor":"user:ana","request":"request-1","event":{"node":1}}');
INSERT INTO billow.events VALUES (29, 1, 1800009330000000000, 'reservation_moved', '{"actor":"user:ana","request":"request-1","event":{"reservation":2,"places":[{"node":2,"gpus":[{"share":{"milli":1000,"mem_mib":81559}}],"cpu_milli":28000,"mem_mib":229376}]}}');
INSERT INTO billow.events VALUES (30, 1, 1800009358000000000, 'budget_set', '{"actor":"user:ana","request":"request-1","event":{"budget":{"of":1,"limit":2000000000}}}');
INSERT INTO billow.events VALUES (31, 1, 1800009372000000000, 'environment_stored', '{"actor":"user:ana","request":"request-1","event":{"digest":"47a2d3ad75162b77c2ac4022fd6f303c","env":{"PATH":"/usr/bin"}}}');
INSERT INTO billow.events VALUES (32, 1, 1800009372000000000, 'jobs_submitted', '{"actor":"user:ana","request":"request-1","event":{"first":2,"spec":{"argv":["python","train.py"],"cwd":"/home/ana","env_digest":"47a2d3ad75162b77c2ac4022fd6f303c","resources":{"gpus":1,"share":{"milli":1000}}},"project":1,"user":1,"expected":{"likely_ns":1814000000000,"at_most_ns":2267500000000,"runs":1}}}');
INSERT INTO billow.events VALUES (33, 1, 1800009372000000000, 'job_held', '{"actor":"head","event":{"job":2,"reason":"budget: the monthly budget of project default ($2.00) leaves $0.00 ($4.32 is reserved); 10m at $3.60/h needs $0.60","rate":1000000}}');
INSERT INTO billow.events VALUES (34, 1, 1800009379000000000, 'jobs_submitted', '{"actor":"user:ana","request":"request-1","event":{"first":3,"spec":{"argv":["python","train.py"],"cwd":"/home/ana","env_digest":"47a2d3ad75162b77c2ac4022fd6f303c","resources":{"gpus":2,"share":{"milli":1000}}},"project":1,"user":1}}');
INSERT INTO billow.events VALUES (35, 1, 1800012993000000000, 'jobs_submitted', '{"actor":"user:ana","request":"request-1","event":{"first":4,"spec":{"argv":["python","train.py"],"cwd":"/home/ana","env_digest":"47a2d3ad75162b77c2ac4022fd6f303c","resources":{"gpus":1,"share":{"milli":1000}}},"project":1,"user":1,"expected":{"likely_ns":1814000000000,"at_most_ns":2267500000000,"runs":1}}}');
INSERT INTO billow.job_counts VALUES ('succeeded', 1, 1);
INSERT INTO billow.jobs VALUES (1, '', 1, 1, 'succeeded', 1800007404000000000, 1800007404000000000, 1800009225000000000, 0, 0, 0, '["n1"]', 'H100', 1, 1000, 1390400000, '{}', '{"spec":{}}');
INSERT INTO billow.leader VALUES (1, 1, 'the head on n0', 'golden', '-infinity', 1);
INSERT INTO billow.meta VALUES ('epoch', 0);
INSERT INTO billow.meta VALUES ('format', 6);
INSERT INTO billow.snapshot_parts VALUES (35, 0, '\x7b22736571223a33352c2261745f6e73223a313830303031323939333030303030303030302c2265706f6368223a312c226e657874223a5b352c332c342c322c332c332c315d2c227370656373223a5b7b2261726776223a5b22707974686f6e222c22747261696e2e7079225d2c22637764223a222f686f6d652f616e61222c22656e765f646967657374223a223437613264336164373531363262373763326163343032326664366633303363222c227265736f7572636573223a7b2267707573223a312c227368617265223a7b226d696c6c69223a313030307d7d7d2c7b2261726776223a5b22707974686f6e222c22747261696e2e7079225d2c22637764223a222f686f6d652f616e61222c22656e765f646967657374223a223437613264336164373531363262373763326163343032326664366633303363222c227265736f7572636573223a7b2267707573223a322c227368617265223a7b226d696c6c69223a313030307d7d7d2c7b2261726776223a5b22707974686f6e222c22747261696e2e7079225d2c22637764223a222f686f6d652f616e61222c22656e765f646967657374223a223437613264336164373531363262373763326163343032326664366633303363222c227265736f7572636573223a7b2267707573223a312c227368617265223a7b226d696c6c69223a313030307d7d7d5d2c226a6f6273223a5b7b226a6f62223a7b226964223a322c2270726f6a656374223a312c2275736572223a312c227374617465223a2268656c64222c227375626d69747465645f61745f6e73223a313830303030393337323030303030303030302c22726561736f6e223a226275646765743a20746865206d6f6e74686c7920627564676574206f662070726f6a6563742064656661756c74202824322e303029206c65617665732024302e3030202824342e3332206973207265736572766564293b2031306d2061742024332e36302f68206e656564732024302e3630222c226578706563746564223a7b226c696b656c795f6e73223a313831343030303030303030302c2261745f6d6f73745f6e73223a323236373530303030303030302c2272756e73223a317d7d7d2c7b226a6f62223a7b226964223a332c2270726f6a656374223a312c2275736572223a312c227375626d69747465645f61745f6e73223a313830303030393337393030303030303030307d2c2273706563223a317d2c7b226a6f62223a7b226964223a342c2270726f6a656374223a312c2275736572223a312c227375626d69747465645f61745f6e73223a313830303031323939333030303030303030302c226578706563746564223a7b226c696b656c795f6e73223a313831343030303030303030302c2261745f6d6f73745f6e73223a323236373530303030303030302c2272756e73223a317d7d2c2273706563223a327d5d2c226e6f646573223a5b7b226964223a322c226f66666572223a7b226e616d65223a226e32222c22626f6f745f6964223a22626f6f742d31222c2267707573223a5b7b2275756964223a224750552d6e322d30222c2276656e646f72223a226e7669646961222c226d6f64656c223a224e56494449412048313030222c2274797065223a2248313030222c226d656d5f6d6962223a38313535392c226e766c696e6b5f646f6d61696e223a307d2c7b22696e646578223a312c2275756964223a224750552d6e322d31222c2276656e646f72223a226e7669646961222c226d6f64656c223a224e56494449412048313030222c2274797065223a2248313030222c226d656d5f6d6962223a38313535392c226e766c696e6b5f646f6d61696e223a307d5d2c226370755f6d696c6c69223a36343030302c226d656d5f6d6962223a3532343238382c226c6162656c73223a7b227261636b223a227231222c227a6f6e65223a2261227d7d2c226a6f696e65645f61745f6e73223a313830303030303032313030303030303030307d2c7b226964223a332c226f66666572223a7b226e616d65223a226e33222c22626f6f745f6964223a22626f6f742d31222c2267707573223a5b7b2275756964223a224750552d6e332d30222c2276656e646f72223a226e7669646961222c226d6f64656c223a224e56494449412048313030222c2274797065223a2248313030222c226d656d5f6d6962223a38313535392c226e766c696e6b5f646f6d61696e223a307d5d2c226370755f6d696c6c69223a36343030302c226d656d5f6d6962223a3532343238382c226c6162656c73223a7b2262696c6c73223a22796573222c227261636b223a227231222c227a6f6e65223a2261227d7d2c22647261696e6564223a22676976656e206261636b3a206e6f206a6f6220666f72203268222c226a6f696e65645f61745f6e73223a313830303030303032383030303030303030307d5d2c227573657273223a5b7b226964223a312c226e616d65223a22616e61222c22756e69785f6e616d65223a22616e61222c22726f6c65223a2261646d696e227d5d2c2270726f6a65637473223a5b7b226964223a312c226e616d65223a2264656661756c74222c226d656d62657273223a7b22616e61223a2261646d696e227d7d2c7b226964223a322c226e616d65223a22766973696f6e227d5d2c22746f6b656e73223a5b7b226964223a312c226e616d65223a226c6f63616c222c2268617368223a2268222c2275736572223a312c22637265617465645f61745f6e73223a313830303030303030373030303030303030307d2c7b226964223a322c226e616d65223a226c6f63616c2d6e6f6465222c2268617368223a226e222c2275736572223a312c2273636f7065223a226e6f6465222c22637265617465645f61745f6e73223a313830303030303030373030303030303030307d5d2c22656e7669726f6e6d656e7473223a5b7b22646967657374223a223437613264336164373531363262373763326163343032326664366633303363222c22656e76223a7b2250415448223a222f7573722f62696e227d2c2275736573223a337d5d2c227573616765223a5b7b2270726f6a656374223a312c226d696c6c695f7365636f6e6473223a313831393130312e313032353930353935312c2261735f6f66223a313830303030393232353030303030303030307d2c7b2270726f6a656374223a312c2275736572223a312c226d696c6c695f7365636f6e6473223a313831393130312e313032353930353935312c2261735f6f66223a313830303030393232353030303030303030307d2c7b2270726f6a656374223a327d5d2c22706f6f6c73223a7b7d2c2262696c6c65645f6e73223a313830303031323939333030303030303030302c226d6f6e6579223a7b22626f6f6b73223a7b226c6173745f736571223a313833353030392c226e6f646573223a5b7b226964223a312c227370616e73223a5b7b2266726f6d5f6e73223a313830303030303031343030303030303030302c2272617465223a323030303030302c2263617061636974795f6d696c6c69223a323030307d2c7b2266726f6d5f6e73223a313830303030393234363030303030303030307d5d7d2c7b226964223a322c227370616e73223a5b7b2266726f6d5f6e73223a313830303030303032313030303030303030302c2272617465223a323030303030302c2263617061636974795f6d696c6c69223a323030307d5d7d2c7b226964223a332c227370616e73223a5b7b2266726f6d5f6e73223a313830303030303032383030303030303030302c2272617465223a313030303030302c2263617061636974795f6d696c6c69223a313030307d5d7d5d2c226c6561736573223a5b7b226f70656e6564223a7b226c65617365223a312c226a6f62223a312c227461736b223a312c2270726f6a656374223a312c2275736572223a312c226e6f6465223a312c226770755f74797065223a2248313030222c2270726963655f636c617373223a227265736572766564222c226d696c6c69223a313030302c2272617465223a3630303030302c2261745f6e73223a313830303030373430343030303030303030307d2c227370616e73223a5b7b2266726f6d5f6e73223a313830303030373430343030303030303030302c226e6f6465223a312c2270726963655f636c617373223a227265736572766564222c226d696c6c69223a313030302c22636861726765645f6d696c6c69223a313030302c2272617465223a3630303030307d5d2c2269735f636c6f736564223a747275652c22636c6f7365645f6e73223a313830303030383436333030303030303030302c22706f73746564223a5b302c302c305d7d2c7b226f70656e6564223a7b226c65617365223a322c227461736b223a322c2270726f6a656374223a312c2275736572223a312c226e6f6465223a312c2270726963655f636c617373223a227265736572766564222c2272617465223a34323633312c2261745f6e73223a313830303030373332333030303030303030307d2c227370616e73223a5b7b2266726f6d5f6e73223a313830303030373332333030303030303030302c226e6f6465223a312c2270726963655f636c617373223a227265736572766564222c22636861726765645f6d696c6c69223a313030302c2272617465223a34323633317d5d2c2269735f636c6f736564223a747275652c22636c6f7365645f6e73223a313830303030383436333030303030303030302c22706f73746564223a5b302c302c305d7d2c7b226f70656e6564223a7b226c65617365223a31373539323138363034343431372c226a6f62223a312c227461736b223a312c2270726f6a656374223a312c2275736572223a312c226e6f6465223a312c226770755f74797065223a2248313030222c226d696c6c69223a313030302c2272617465223a313030303030302c2261745f6e73223a313830303030383436333030303030303030307d2c227370616e73223a5b7b2266726f6d5f6e73223a313830303030383436333030303030303030302c226e6f6465223a312c226d696c6c69223a313030302c22636861726765645f6d696c6c69223a313030302c2272617465223a313030303030307d5d2c2269735f636c6f736564223a747275652c22636c6f7365645f6e73223a313830303030393231383030303030303030302c22706f73746564223a5b302c302c305d7d5d7d2c22646179735f636c6f736564223a32303833332c2262756467657473223a5b7b22627564676574223a7b226f66223a312c226c696d6974223a323030303030303030307d2c2270726f6772657373223a7b22706572696f645f66726f6d5f6e73223a313739383736313630303030303030303030307d2c22636f756e7465645f66726f6d5f6e73223a313739383736313630303030303030303030302c226279223a22757365723a616e61227d5d2c2268656c64223a5b7b226a6f62223a322c2272617465223a313030303030307d5d2c22656d707479223a5b7b226e6f6465223a322c2273696e63655f6e73223a313830303030303032313030303030303030307d2c7b226e6f6465223a332c2273696e63655f6e73223a313830303030303032383030303030303030307d5d2c2272656c6561736564223a5b335d2c226e6578745f776562686f6f6b223a322c22776562686f6f6b73223a5b7b226964223a312c2275726c223a2268747470733a2f2f6578616d706c652e636f6d2f686f6f6b222c226b696e6473223a5b226a6f62225d2c2264656c697665726564223a31337d5d7d2c227265736572766174696f6e73223a5b7b226964223a322c226e616d65223a226c61746572222c2270726f6a656374223a312c2275736572223a312c2266726f6d5f6e73223a313830303034353232353030303030303030302c22756e74696c5f6e73223a313830303035323432353030303030303030302c227265736f7572636573223a7b2267707573223a312c227368617265223a7b226d696c6c69223a313030307d7d2c22706c61636573223a5b7b226e6f6465223a322c2267707573223a5b7b227368617265223a7b226d696c6c69223a313030302c226d656d5f6d6962223a38313535397d7d5d2c226370755f6d696c6c69223a32383030302c226d656d5f6d6962223a3232393337367d5d2c2272617465223a3630303030302c226d6164655f61745f6e73223a313830303030393233323030303030303030307d5d2c226e6578745f7265736572766174696f6e223a332c226475726174696f6e73223a5b7b226b6579223a3732333537313434373732313835303135342c2275736564223a312c226d73223a5b313831343030305d7d2c7b226b6579223a373333373833353035353835363037353233322c2275736564223a322c226d73223a5b313831343030305d7d5d2c226475726174696f6e735f6c6561726e6564223a322c22726563656e74223a5b7b227265736f7572636573223a7b2267707573223a312c227368617265223a7b226d696c6c69223a313030307d2c226370755f6d696c6c69223a32357d2c22776569676874223a312e307d5d2c226c6561726e65645f737461727473223a312c226c6561726e65645f6e6578745f6174223a31367d');
INSERT INTO billow.snapshots VALUES (35, '4d8cb27c4b500ecc54228aa9297425dc761aaf652ff9fd744edf700c7db872cc');
ALTER TABLE ONLY billow.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (number);
ALTER TABLE ONLY billow.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY billow.job_counts
    ADD CONSTRAINT job_counts_pkey PRIMARY KEY (state, project_id);
ALTER TABLE ONLY billow.job_labels
    ADD CONSTRAINT job_labels_pkey PRIMARY KEY (key, value, state, job_id);
ALTER TABLE ONLY billow.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY billow.leader
    ADD CONSTRAINT leader_pkey PRIMARY KEY (id);
ALTER TABLE ONLY billow.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (id);
ALTER TABLE ONLY billow.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY billow.node_days
    ADD CONSTRAINT node_days_pkey PRIMARY KEY (day, node_name);
ALTER TABLE ONLY billow.shared
    ADD CONSTRAINT shared_pkey PRIMARY KEY (name);
ALTER TABLE ONLY billow.snapshot_parts
    ADD CONSTRAINT snapshot_parts_pkey PRIMARY KEY (seq, part);
ALTER TABLE ONLY billow.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY billow.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (id);
ALTER TABLE ONLY billow.usage_daily
    ADD CONSTRAINT usage_daily_pkey PRIMARY KEY (day, project_id, user_id, gpu_type, price_class);
CREATE INDEX entries_lease ON billow.entries USING btree (lease_id, number) WHERE (lease_id <> 0);
CREATE INDEX events_variables ON billow.events USING btree (billow.json_extract(payload, '$.event.digest'::text)) WHERE (kind = 'environment_stored'::text);
CREATE INDEX jobs_array ON billow.jobs USING btree (array_id, state, id) WHERE (array_id <> 0);
CREATE INDEX jobs_ended ON billow.jobs USING btree (ended_at, id) WHERE (ended_at > 0);
CREATE INDEX jobs_project ON billow.jobs USING btree (project_id, state, id);
CREATE INDEX jobs_state ON billow.jobs USING btree (state, id);
CREATE INDEX jobs_user ON billow.jobs USING btree (user_id, state, id);
CREATE INDEX leases_job ON billow.leases USING btree (job_id, id);
CREATE INDEX leases_project ON billow.leases USING btree (project_id, id);
CREATE INDEX tasks_job ON billow.tasks USING btree (job_id, id);

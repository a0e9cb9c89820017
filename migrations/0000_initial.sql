CREATE TABLE "attempts" (
	"trial_id" text NOT NULL,
	"attempt" integer NOT NULL,
	"outcome" text,
	"reason" text,
	"host" text,
	"seconds" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"opened_at" timestamp with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp with time zone,
	CONSTRAINT "attempts_trial_id_attempt_pk" PRIMARY KEY("trial_id","attempt")
);
--> statement-breakpoint
CREATE TABLE "batches" (
	"run_id" text NOT NULL,
	"iteration" integer NOT NULL,
	"take" integer NOT NULL,
	"sha256" text NOT NULL,
	"path" text NOT NULL,
	"samples" integer NOT NULL,
	"trials" integer NOT NULL,
	"metrics" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "batches_run_id_iteration_take_pk" PRIMARY KEY("run_id","iteration","take")
);
--> statement-breakpoint
CREATE TABLE "calls_under_way" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"key" text NOT NULL,
	"until" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "calls" (
	"id" uuid PRIMARY KEY NOT NULL,
	"seq" bigserial NOT NULL,
	"trial_id" text NOT NULL,
	"attempt" integer NOT NULL,
	"choice_of" uuid,
	"status" text NOT NULL,
	"reason" text,
	"http_status" integer NOT NULL,
	"protocol" text NOT NULL,
	"stream" boolean NOT NULL,
	"digest" "bytea",
	"idempotency_key" text,
	"replayed" boolean DEFAULT false NOT NULL,
	"base_id" uuid,
	"shared_ids" integer DEFAULT 0 NOT NULL,
	"request" "bytea" NOT NULL,
	"response" "bytea",
	"prompt_token_ids" "bytea",
	"completion_token_ids" "bytea",
	"logprobs" "bytea",
	"finish_reason" text,
	"sampling" jsonb NOT NULL,
	"engine" text,
	"policy_label" text,
	"policy_version" integer,
	"version_spans" jsonb,
	"parent_id" uuid,
	"continuation" text,
	"untrainable" text,
	"started_at" timestamp with time zone NOT NULL,
	"first_token_at" timestamp with time zone,
	"ended_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "groups" (
	"id" text PRIMARY KEY NOT NULL,
	"run_id" text NOT NULL,
	"kind" text NOT NULL,
	"iteration" integer,
	"take" integer,
	"ordinal" integer NOT NULL,
	"task" text NOT NULL,
	"agent" text NOT NULL,
	"size" integer NOT NULL,
	"policy_version" integer NOT NULL,
	"dropped" text,
	"batch_iteration" integer,
	"batch_take" integer,
	"opened_at" timestamp with time zone DEFAULT now() NOT NULL,
	"deadline_at" timestamp with time zone,
	"ended_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "iterations" (
	"run_id" text NOT NULL,
	"iteration" integer NOT NULL,
	"take" integer NOT NULL,
	"status" text DEFAULT 'open' NOT NULL,
	"policy_version" integer NOT NULL,
	"trained_version" integer,
	"seconds" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"opened_at" timestamp with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp with time zone,
	CONSTRAINT "iterations_run_id_iteration_take_pk" PRIMARY KEY("run_id","iteration","take")
);
--> statement-breakpoint
CREATE TABLE "policy_versions" (
	"run_id" text NOT NULL,
	"version" integer NOT NULL,
	"parent_version" integer,
	"iteration" integer,
	"take" integer,
	"step_key" text NOT NULL,
	"checkpoint" text NOT NULL,
	"checkpoint_sha256" text NOT NULL,
	"batch_sha256" text,
	"canary" jsonb NOT NULL,
	"canary_tolerance" real,
	"metrics" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "policy_versions_run_id_version_pk" PRIMARY KEY("run_id","version"),
	CONSTRAINT "one_version_a_step" UNIQUE("run_id","iteration","take")
);
--> statement-breakpoint
CREATE TABLE "publications" (
	"run_id" text NOT NULL,
	"version" integer NOT NULL,
	"replica" text NOT NULL,
	"label" text NOT NULL,
	"checksum" text NOT NULL,
	"canary_difference" real NOT NULL,
	"confirmed_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "publications_run_id_version_replica_pk" PRIMARY KEY("run_id","version","replica")
);
--> statement-breakpoint
CREATE TABLE "quarantined_tasks" (
	"run_id" text NOT NULL,
	"task" text NOT NULL,
	"reason" text NOT NULL,
	"at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "quarantined_tasks_run_id_task_pk" PRIMARY KEY("run_id","task")
);
--> statement-breakpoint
CREATE TABLE "replicas" (
	"url" text PRIMARY KEY NOT NULL,
	"pool" text DEFAULT 'deployment' NOT NULL,
	"run_id" text,
	"label" text,
	"in_rotation" boolean DEFAULT true NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "runs" (
	"id" text PRIMARY KEY NOT NULL,
	"config" jsonb NOT NULL,
	"status" text DEFAULT 'running' NOT NULL,
	"reason" text,
	"next_version" integer DEFAULT 0 NOT NULL,
	"resumed_at" timestamp with time zone,
	"forked_from" text,
	"rescores" text,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "trials" (
	"id" text PRIMARY KEY NOT NULL,
	"run_id" text,
	"group_id" text,
	"member" integer,
	"task" text,
	"agent" text,
	"attempt" integer DEFAULT 1 NOT NULL,
	"status" text DEFAULT 'created' NOT NULL,
	"sampling" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"budgets" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"recorded" integer DEFAULT 0 NOT NULL,
	"used_calls" integer DEFAULT 0 NOT NULL,
	"used_tokens" bigint DEFAULT 0 NOT NULL,
	"reserved" jsonb,
	"exhausted" text,
	"attempt_opened_at" timestamp with time zone DEFAULT now() NOT NULL,
	"policy_version" integer,
	"batch_iteration" integer,
	"batch_take" integer,
	"outcome" text,
	"rewards" jsonb,
	"reported_reward" double precision,
	"reason" text,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"completed_at" timestamp with time zone,
	"sealed_at" timestamp with time zone
);
--> statement-breakpoint
ALTER TABLE "attempts" ADD CONSTRAINT "attempts_trial_id_trials_id_fk" FOREIGN KEY ("trial_id") REFERENCES "public"."trials"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "batches" ADD CONSTRAINT "batches_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "groups" ADD CONSTRAINT "groups_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "iterations" ADD CONSTRAINT "iterations_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "policy_versions" ADD CONSTRAINT "policy_versions_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "publications" ADD CONSTRAINT "publications_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "quarantined_tasks" ADD CONSTRAINT "quarantined_tasks_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "calls_under_way_by_key" ON "calls_under_way" USING btree ("key","id");--> statement-breakpoint
CREATE INDEX "calls_by_trial" ON "calls" USING btree ("trial_id","attempt","seq");--> statement-breakpoint
CREATE INDEX "groups_by_batch" ON "groups" USING btree ("run_id","batch_iteration","batch_take");--> statement-breakpoint
CREATE INDEX "groups_by_take" ON "groups" USING btree ("run_id","iteration","take");--> statement-breakpoint
CREATE INDEX "trials_by_group" ON "trials" USING btree ("group_id");--> statement-breakpoint
CREATE INDEX "trials_by_run" ON "trials" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "trials_by_age" ON "trials" USING btree ("created_at","id");
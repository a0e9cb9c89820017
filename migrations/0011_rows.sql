CREATE TABLE "rows" (
	"run_id" text NOT NULL,
	"source" text NOT NULL,
	"index" integer NOT NULL,
	"data" text NOT NULL,
	"agent" text,
	CONSTRAINT "rows_run_id_source_index_pk" PRIMARY KEY("run_id","source","index")
);
--> statement-breakpoint
ALTER TABLE "rows" ADD CONSTRAINT "rows_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;
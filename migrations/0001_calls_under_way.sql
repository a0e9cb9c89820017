CREATE TABLE "calls_under_way" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"key" text NOT NULL,
	"until" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE INDEX "calls_under_way_by_key" ON "calls_under_way" USING btree ("key","id");
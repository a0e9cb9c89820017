ALTER TABLE "replicas" ADD COLUMN "found_by" text DEFAULT 'list' NOT NULL;--> statement-breakpoint
ALTER TABLE "replicas" ADD COLUMN "draining" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "replicas" ADD COLUMN "drained_by_hand" boolean DEFAULT false NOT NULL;
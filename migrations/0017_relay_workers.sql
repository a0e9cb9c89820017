CREATE TABLE "relay_workers" (
	"id" text PRIMARY KEY NOT NULL,
	"url" text NOT NULL,
	"gateway" text NOT NULL,
	"session" text NOT NULL,
	"epoch" bigserial NOT NULL,
	"renewed_at" timestamp with time zone DEFAULT now() NOT NULL
);

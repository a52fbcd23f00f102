// Package tenants plays two authors on one node: a bank, and a neighbour in another namespace who reaches for what the
// bank has, by every kind of object and every front end, in every way by which an object names another.
//
// The tables say for each kind and way what the neighbour gets: a refusal, in words that the table has, or storage of
// its own. An administrator's kinds have no way. A cell that is empty fails, and so does a kind that a manifest may
// contain and that has no row. The judge looks at the node after every step, whatever the cell: the bank's mounts are the
// same, its files are whole, its snapshots are there, and no file that the neighbour can reach has the bank's words.
package tenants

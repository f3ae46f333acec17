#!/usr/bin/perl
use strict;
use warnings;

my %bytes_by_host;

while (my $line = <STDIN>) {
    chomp $line;
    next unless $line =~ /^(\S+) \S+ \S+ \[[^\]]+\] "[^"]*" \d{3} (\d+)/;
    my ($host, $bytes) = ($1, $2);
    $bytes_by_host{$host} += $bytes;
}

foreach my $host (sort { $bytes_by_host{$b} <=> $bytes_by_host{$a} } keys %bytes_by_host) {
    printf "%-40s %12d\n", $host, $bytes_by_host{$host};
}

sub average {
    my @values = @_;
    return 0 unless @values;
    my $sum = 0;
    $sum += $_ for @values;
    return $sum / scalar(@values);
}
1;

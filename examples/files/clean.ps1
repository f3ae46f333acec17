<#
.SYNOPSIS
Removes old log files.
#>
param(
    [Parameter(Mandatory = $true)]
    [string]$Path,
    [int]$Days = 14
)

$limit = (Get-Date).AddDays(-$Days)

Get-ChildItem -Path $Path -Filter *.log -Recurse |
    Where-Object { $_.LastWriteTime -lt $limit } |
    ForEach-Object {
        Write-Host "Removing $($_.FullName)"
        Remove-Item -Path $_.FullName -Force -ErrorAction SilentlyContinue
    }

if (-not (Test-Path $Path)) {
    Write-Error "No such folder: $Path"
    exit 1
}
